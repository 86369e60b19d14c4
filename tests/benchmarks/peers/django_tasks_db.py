"""django-tasks-db: two workers, each with one job at a time, which is all that it has."""

from __future__ import annotations

from tests.benchmarks.peers import django_environment

PACKAGE = "django-tasks-db"
REQUIREMENTS = ("django-tasks-db", "django>=6.0", "psycopg[binary,pool]")
WORKERS = 2
SUCCEEDED = "select count(*) from django_tasks_database_dbtaskresult where status = 'SUCCESSFUL'"


def _set_up() -> None:
    django_environment.set_up("django_tasks_db", backend={"BACKEND": "django_tasks_db.DatabaseBackend"})


def prepare() -> None:
    _set_up()
    django_environment.migrate()


def wipe() -> None:
    _set_up()
    django_environment.truncate("django_tasks_database_")


class Client:
    """It has no way to queue many at once."""

    many = None

    def __init__(self) -> None:
        _set_up()
        from tests.benchmarks.peers.django_task import noop

        self._noop = noop

    def one(self, number: int) -> None:
        self._noop.enqueue(number)


def work() -> None:
    _set_up()
    from django.core.management import call_command

    call_command("db_worker", startup_delay=False, verbosity=0)
