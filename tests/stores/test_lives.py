"""Whether the process that has a claim in hand still lives: asked of real processes, by either kind of lock."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from django_jobs.stores import lives
from tests.stores.holding import Holder, holder
from tests.system.processes import until

if sys.platform == "win32":
    pytest.skip("Windows has no fcntl", allow_module_level=True)

TOKEN = 2**62
"""The largest that is drawn."""


@pytest.fixture(params=["DescriptionLocks", "ProcessLocks"])
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Use one kind of lock, here and there."""
    if request.param == "DescriptionLocks" and sys.platform != "linux":
        pytest.skip("only Linux has locks of open file descriptions")
    monkeypatch.setattr(lives, "_locks", getattr(lives, request.param)())
    return str(request.param)


@pytest.fixture
def database(tmp_path: Path) -> str:
    file = tmp_path / "db.sqlite3"
    file.touch()
    return str(file)


@pytest.fixture
def other(kind: str, database: str) -> Iterator[Holder]:
    """A process that has a claim in hand."""
    with holder(database, TOKEN, kind=kind) as started:
        yield started


def test_a_life_is_there_for_exactly_its_token(other: Holder, database: str) -> None:
    assert lives.is_there(database, TOKEN)
    assert not lives.is_there(database, TOKEN - 1)


def test_a_life_ends_with_what_is_in_hand(other: Holder, database: str) -> None:
    other.do("end()")
    assert not lives.is_there(database, TOKEN)


def test_a_life_ends_with_its_process_however_that_ends(other: Holder, database: str) -> None:
    other.process.send_signal(signal.SIGKILL)
    # Dead but not reaped: what a hanging supervisor leaves.
    os.waitid(os.P_PID, other.process.pid, os.WEXITED | os.WNOWAIT)
    assert not lives.is_there(database, TOKEN)


def test_a_stopped_process_lives(other: Holder, database: str) -> None:
    other.stop()
    os.waitid(os.P_PID, other.process.pid, os.WSTOPPED)
    assert lives.is_there(database, TOKEN)


def test_a_forked_child_does_not_keep_the_life_of_its_parent(other: Holder, database: str) -> None:
    other.do("child = os.fork() or __import__('signal').pause()")
    assert lives.is_there(database, TOKEN)
    with outliving(other, database):
        # The child gives its copy up in its first moment, which may come after the parent's end.
        until(lambda: not lives.is_there(database, TOKEN), what="the life ends")


def test_what_a_forked_child_ends_or_closes_leaves_its_parents_life(other: Holder, database: str) -> None:
    other.do("child = os.fork() or (end(), os._exit(0))")
    other.do("os.waitpid(child, 0)")
    assert lives.is_there(database, TOKEN)


def test_what_a_job_starts_does_not_keep_the_life_of_its_worker(other: Holder, database: str) -> None:
    other.do("import subprocess; child = subprocess.Popen(['sleep', '600'], close_fds=False).pid")
    with outliving(other, database):
        assert not lives.is_there(database, TOKEN)


@contextmanager
def outliving(parent: Holder, database: str) -> Iterator[None]:
    """Kill the parent and let its child live on meanwhile."""
    parent.do("open(sys.argv[2], 'w').write(str(child))")
    child = int(Path(database).read_text())
    parent.kill()
    try:
        yield
        os.kill(child, 0)
    finally:
        os.kill(child, signal.SIGKILL)


def test_a_job_that_copies_the_folder_ends_no_life(other: Holder, database: str, kind: str) -> None:
    if kind == "ProcessLocks":
        pytest.skip("POSIX locks go when any descriptor of the file is closed; where there are no others, that is said")
    other.do("open(sys.argv[2] + lives.SUFFIX).close()")
    assert lives.is_there(database, TOKEN)


def test_holders_keep_nobody_out(other: Holder, kind: str, database: str) -> None:
    with holder(database, TOKEN, kind=kind):
        other.kill()
        assert lives.is_there(database, TOKEN)
    assert not lives.is_there(database, TOKEN)


def test_a_process_knows_what_it_has_in_hand_itself(kind: str, database: str) -> None:
    first, second = lives.begin(database, 1), lives.begin(database, 2)
    assert lives.is_there(database, 1)
    first()
    first()
    assert not lives.is_there(database, 1)
    assert lives.is_there(database, 2)
    second()


def test_asking_ends_no_life_of_the_asker(kind: str, database: str) -> None:
    end = lives.begin(database, 1)
    assert not lives.is_there(database, 2)
    with holder(database, 2, kind=kind) as asker:
        asker.do("assert lives.is_there(database, 1)")
        asker.do("assert not lives.is_there(database, 3)")
    end()


def test_threads_begin_and_end_at_once(kind: str, database: str) -> None:
    def work(number: int) -> None:
        for turn in range(200):
            lives.begin(database, number * 1_000 + turn)()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not lives.is_there(database, 1_000)
    assert lives._files[database + lives.SUFFIX].mine == set()


def count_open_files() -> int:
    """Count the descriptors of this process, where the system shows them."""
    return len(list(Path("/dev/fd").iterdir()))


class TestTheFile:
    def test_it_is_empty_and_for_whom_the_database_is(self, kind: str, database: str) -> None:
        Path(database).chmod(0o640)
        lives.begin(database, TOKEN)()
        [file] = Path(database).parent.glob("*-lives")
        assert (file.name, file.stat().st_size) == ("db.sqlite3-django-jobs-lives", 0)
        assert file.stat().st_mode & 0o777 == 0o640

    def test_asking_makes_none(self, kind: str, database: str, odd: list[str]) -> None:
        assert not lives.is_there(database, TOKEN)
        assert (list(Path(database).parent.glob("*-lives")), odd) == ([], [])

    def test_one_that_was_removed_is_made_again_for_the_next_claims(self, other: Holder, database: str) -> None:
        assert lives.is_there(database, TOKEN)
        Path(database + lives.SUFFIX).unlink()
        assert not lives.is_there(database, TOKEN)
        other.do("lives.begin(database, 7)")
        assert lives.is_there(database, 7)

    def test_files_in_whose_place_others_stand_are_closed(self, kind: str, database: str) -> None:
        before = count_open_files()
        for token in range(1, 11):
            end = lives.begin(database, token)
            Path(database + lives.SUFFIX).unlink()
            lives.begin(database, 1_000 + token)()
            assert lives.is_there(database, token)
            end()
        assert count_open_files() <= before + 1

    @pytest.mark.parametrize("error", [PermissionError(13, "Permission denied"), OSError(30, "Read-only file system")])
    def test_one_that_cannot_be_made_is_told_once_and_holds_nobody_up(
        self, kind: str, database: str, error: OSError, odd: list[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def refuse(*_: Any) -> int:
            raise error

        with monkeypatch.context() as patched:
            patched.setattr(os, "open", refuse)
            for token in (1, 2):
                end = lives.begin(database, token)
                assert not lives.is_there(database, token)
                end()
        [warning] = odd
        assert warning.startswith(f"{database}-django-jobs-lives can't be locked ({error.strerror}). Jobs run all the ")
        assert warning.endswith("let workers write in this folder")

    def test_a_file_system_without_locks_is_told_once(
        self, kind: str, database: str, odd: list[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def refuse(*_: Any) -> None:
            raise OSError(37, "No locks available")

        monkeypatch.setattr(type(lives._locks), "take", refuse)
        lives.begin(database, 1)()
        assert len(odd) == 1

    def test_a_database_in_memory_has_none(self, kind: str) -> None:
        lives.begin("", TOKEN)()
        assert not lives.is_there("", TOKEN)


def test_without_locks_on_this_system_nothing_is_made(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lives, "_locks", None)
    lives.begin(database, TOKEN)()
    assert not lives.is_there(database, TOKEN)
    assert list(Path(database).parent.glob("*-lives")) == []
