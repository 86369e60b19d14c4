"""Write: the field that holds an instant, and "now" as a database expression."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from django.db import models
from django.utils.dateparse import parse_datetime

from django_jobs import clock

if TYPE_CHECKING:
    from django.db.backends.base.base import BaseDatabaseWrapper
    from django.db.models.sql.compiler import SQLCompiler

SQLITE_FORMAT = "%Y-%m-%d %H:%M:%S.%f"


class InstantField(models.DateTimeField):  # type: ignore[type-arg]
    """A moment in time: UTC in the database and aware UTC in Python, whatever USE_TZ says; only display converts.

    A naive datetime is refused with ValueError. On SQLite an instant is text of one width, so that it compares as text.
    """

    def get_internal_type(self) -> str:
        return "DateTimeField"

    def to_python(self, value: Any) -> datetime | None:
        if value is None or isinstance(value, datetime):
            return None if value is None else self._aware(value)
        parsed = parse_datetime(str(value))
        return self._aware(parsed if parsed is not None else super().to_python(value))

    def get_prep_value(self, value: Any) -> Any:
        value = models.Field.get_prep_value(self, value)
        return self.to_python(value)

    def get_db_prep_value(self, value: Any, connection: BaseDatabaseWrapper, prepared: bool = False) -> Any:  # noqa: FBT001, FBT002
        if not prepared:
            value = self.get_prep_value(value)
        if isinstance(value, datetime) and connection.vendor == "sqlite":
            return value.strftime(SQLITE_FORMAT)
        return value

    def select_format(self, compiler: SQLCompiler, sql: str, params: Any) -> tuple[str, Any]:
        # Django reads instants in the zone of the connection, and drops it without USE_TZ. What arrives as naive UTC
        # (PostgreSQL) or says its offset (SQLite) passes through unharmed. Within a query only real instants compare.
        if compiler.query.subquery:
            return sql, params
        if compiler.connection.vendor == "postgresql":
            return f"({sql}) AT TIME ZONE 'UTC'", params
        return f"({sql}) || '+00:00'", params

    def from_db_value(self, value: Any, expression: Any, connection: BaseDatabaseWrapper) -> datetime | None:
        if value is None:
            return None
        if isinstance(value, str):
            value = datetime.fromisoformat(value)
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)  # type: ignore[no-any-return]

    def get_db_converters(self, connection: BaseDatabaseWrapper) -> list[Any]:
        return [self.from_db_value]

    def formfield(self, **kwargs: Any) -> Any:
        return super().formfield(**kwargs)

    def _aware(self, value: datetime | None) -> datetime | None:
        if value is None:
            return None
        if value.tzinfo is None:
            message = f"{self.name}: {value!r} is naive; give an aware datetime"
            raise ValueError(message)
        return value.astimezone(UTC)


class DatabaseNow(models.Func):
    """The present instant: the server's on PostgreSQL, this host's on SQLite, the frozen one where a test froze it."""

    output_field = InstantField()
    arity = 0

    def as_postgresql(self, compiler: SQLCompiler, connection: BaseDatabaseWrapper, **_: Any) -> tuple[str, list[Any]]:
        frozen = clock.frozen_now()
        return ("STATEMENT_TIMESTAMP()", []) if frozen is None else ("%s::timestamptz", [frozen])

    def as_sqlite(self, compiler: SQLCompiler, connection: BaseDatabaseWrapper, **_: Any) -> Any:
        return "%s", [clock.now().strftime(SQLITE_FORMAT)]
