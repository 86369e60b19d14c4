from __future__ import annotations

import builtins
import importlib
import socket
import subprocess
import threading
from collections.abc import Callable
from typing import Any, NoReturn

import pytest

from django_jobs.failures import exception_path, failure_of, fingerprint_of, shown
from django_jobs.records import Failure
from django_jobs.stores.base import clean


def raised_by(body: Callable[[], object]) -> BaseException:
    try:
        body()
    except BaseException as error:
        return error
    raise AssertionError("it raised nothing")


def failure_by(body: Callable[[], object]) -> Failure:
    return failure_of(raised_by(body), job="shop.greet")


class OutOfStock(Exception):
    pass


def sell() -> NoReturn:
    raise OutOfStock("no more apples")


def sell_another() -> NoReturn:
    raise OutOfStock("no more pears")


# -- an ordinary exception


def test_an_exception_becomes_its_text_its_path_and_its_traceback() -> None:
    failure = failure_by(sell)
    assert failure.kind == "error"
    assert failure.reason == "no more apples"
    assert failure.exception == "tests.test_failures.OutOfStock"
    lines = failure.traceback.splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert lines[-3].endswith(", in sell")
    assert lines[-2:] == ['    raise OutOfStock("no more apples")', "tests.test_failures.OutOfStock: no more apples"]


@pytest.mark.parametrize(
    "error", [OutOfStock("x"), KeyError("x"), socket.gaierror("x"), subprocess.CalledProcessError(1, "x")]
)
def test_the_path_of_an_exception_can_be_imported(error: BaseException) -> None:
    module, _, name = exception_path(error).rpartition(".")
    assert getattr(importlib.import_module(module), name) is type(error)


def test_an_exception_without_a_text_is_shown_by_its_class() -> None:
    failure = failure_of(MemoryError(), job="shop.greet")
    assert failure.reason == "MemoryError"
    assert failure.exception == "builtins.MemoryError"
    assert failure.traceback == "MemoryError\n"


def test_a_reason_and_a_kind_may_be_given() -> None:
    failure = failure_of(OutOfStock("no more"), job="shop.greet", kind="misfit", reason="it no longer fits")
    assert (failure.kind, failure.reason) == ("misfit", "it no longer fits")
    assert failure.traceback == "tests.test_failures.OutOfStock: no more\n"


def test_a_cause_and_a_context_are_told_as_python_does() -> None:
    def body() -> None:
        try:
            try:
                raise KeyError("apples")
            except KeyError as missing:
                raise LookupError("not on the shelf") from missing
        except LookupError:
            sell()

    text = failure_by(body).traceback
    assert [line for line in text.splitlines() if not line.startswith(" ")] == [
        "Traceback (most recent call last):",
        "KeyError: 'apples'",
        "",
        "The above exception was the direct cause of the following exception:",
        "",
        "Traceback (most recent call last):",
        "LookupError: not on the shelf",
        "",
        "During handling of the above exception, another exception occurred:",
        "",
        "Traceback (most recent call last):",
        "tests.test_failures.OutOfStock: no more apples",
    ]


def test_a_suppressed_context_is_left_out() -> None:
    def body() -> None:
        try:
            sell()
        except OutOfStock:
            raise ValueError("try later") from None

    assert "apples" not in failure_by(body).traceback


# -- groups and notes


def test_the_members_of_a_group_are_shown_with_their_own_tracebacks() -> None:
    def body() -> None:
        inner = ExceptionGroup("pears too", [raised_by(sell_another)])
        raise ExceptionGroup("two shelves", [raised_by(sell), inner])

    failure = failure_by(body)
    assert failure.exception == "builtins.ExceptionGroup"
    assert failure.reason == "two shelves (2 sub-exceptions)"
    lines = failure.traceback.splitlines()
    assert "ExceptionGroup: two shelves (2 sub-exceptions)" in lines
    assert '  |     raise OutOfStock("no more apples")' in lines
    assert "  | tests.test_failures.OutOfStock: no more apples" in lines
    assert "  |   | tests.test_failures.OutOfStock: no more pears" in lines


def test_a_group_of_thousands_and_a_group_nested_deeply_stay_short() -> None:
    wide = ExceptionGroup("wide", [ValueError(number) for number in range(5_000)])
    assert failure_of(wide, job="j").traceback.splitlines()[-1] == "  | … and 4990 more"
    deep: Exception = ValueError("the bottom")
    for _ in range(500):
        deep = ExceptionGroup("deep", [deep])
    assert failure_of(deep, job="j").traceback.count("deep (1 sub-exception)") == 4


def test_notes_follow_the_exception() -> None:
    error = ValueError("no")
    error.add_note("order 5")
    error.add_note("line 3")
    assert failure_of(error, job="j").traceback == "ValueError: no\norder 5\nline 3\n"


class HostileText(str):
    """A text that answers nothing."""

    __slots__ = ()

    def _refuse(self, *args: object) -> Any:
        raise RuntimeError("I won't")

    __str__ = __repr__ = __format__ = __len__ = __getitem__ = __add__ = __radd__ = __eq__ = __iter__ = _refuse
    encode = split = splitlines = startswith = strip = rstrip = replace = join = _refuse
    __hash__ = str.__hash__


class Unshowable:
    def __repr__(self) -> str:
        raise RuntimeError("I won't")


def test_hostile_notes_do_no_harm() -> None:
    error = ValueError("no")
    error.__notes__ = [Unshowable(), HostileText("hidden"), b"bytes", "plain"]
    assert failure_of(error, job="j").traceback == (
        "ValueError: no\n"
        "Unshowable (its text can't be shown: RuntimeError)\n"
        "HostileText (its text can't be shown: RuntimeError)\n"
        "b'bytes'\n"
        "plain\n"
    )
    error.__notes__ = 5  # type: ignore[assignment]
    assert failure_of(error, job="j").traceback == "ValueError: no\n"
    error.__notes__ = [f"note {number}" for number in range(1_000)]
    assert failure_of(error, job="j").traceback.splitlines()[-1] == "note 9"


# -- exceptions that can't be shown


class StrRaises(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text today")


class StrExits(Exception):
    def __str__(self) -> str:
        raise SystemExit


class StrGivesBytes(Exception):
    def __str__(self) -> Any:
        return b"bytes"  # noqa: PLE0307


class StrGivesNone(Exception):
    def __str__(self) -> Any:
        return None  # noqa: PLE0307


class StrRecurses(Exception):
    def __str__(self) -> str:
        return str(self)


class StrRunsOut(Exception):
    def __str__(self) -> str:
        raise MemoryError


@pytest.mark.parametrize(
    ("error", "problem"),
    [
        (StrRaises(), "RuntimeError"),
        (StrExits(), "SystemExit"),
        (StrGivesBytes(), "TypeError"),
        (StrGivesNone(), "TypeError"),
        (StrRecurses(), "RecursionError"),
        (StrRunsOut(), "MemoryError"),
        (ValueError(Unshowable()), "RuntimeError"),
    ],
)
def test_a_text_that_cannot_be_made_is_replaced_by_the_name_of_the_class(error: Exception, problem: str) -> None:
    name = type(error).__name__
    failure = failure_of(error, job="j")
    assert failure.reason == f"{name} (its text can't be shown: {problem})"
    assert failure.traceback.endswith(f"{name}: {failure.reason}\n")
    assert failure.fingerprint


def test_a_text_of_a_hostile_subclass_of_str_is_made_plain() -> None:
    class Answer(str):
        __slots__ = ()

        def __str__(self) -> str:
            return self

        __len__ = __format__ = __getitem__ = __add__ = HostileText._refuse

    class Answering(Exception):
        def __str__(self) -> str:
            return Answer("hidden")

    failure = failure_of(Answering(), job="j")
    assert failure.reason == "hidden"
    assert type(failure.reason) is str


def test_required_arguments_of_a_class_are_never_needed_again() -> None:
    class Refused(Exception):
        def __init__(self, order: int, *, line: int) -> None:
            super().__init__(order, line)

    assert failure_of(Refused(5, line=3), job="j").reason == "(5, 3)"


def test_an_exception_that_holds_a_lock_or_a_socket_leaves_only_text() -> None:
    with socket.socket() as held:
        failure = failure_of(OSError(threading.Lock(), held), job="j")
    assert "unlocked" in failure.reason
    assert "socket" in failure.reason


def test_a_class_defined_in_a_function_is_named_with_its_place() -> None:
    class Local(Exception):
        pass

    assert exception_path(Local()) == (
        "tests.test_failures.test_a_class_defined_in_a_function_is_named_with_its_place.<locals>.Local"
    )


@pytest.mark.parametrize("module", [None, 5, b"bytes"])
def test_a_class_with_a_module_that_is_no_text_is_named_alone(module: object) -> None:
    stray = type("Stray", (Exception,), {"__module__": module})("lost")
    failure = failure_of(stray, job="j")
    assert failure.exception == "Stray"
    assert failure.traceback == "Stray: lost\n"


def test_a_metaclass_has_no_say() -> None:
    class Liar(type):
        __module__ = property(HostileText._refuse)  # type: ignore[assignment]
        __name__ = property(HostileText._refuse)  # type: ignore[assignment]

    lying = Liar("Lying", (Exception,), {"__module__": "shop"})("lost")
    assert exception_path(lying) == "shop.Lying"


def test_attributes_that_raise_cost_only_what_they_hide() -> None:
    class Hostile(Exception):
        __cause__ = __context__ = __notes__ = property(HostileText._refuse)  # type: ignore[assignment]

    def body() -> None:
        raise Hostile("lost")

    failure = failure_by(body)
    assert failure.reason == "lost"
    assert failure.traceback.startswith("Traceback (most recent call last):\n")
    assert failure.traceback.endswith("Hostile: lost\n")


def test_a_group_that_hides_its_members_is_named_alone() -> None:
    class Hostile(ExceptionGroup[Exception]):
        exceptions = property(HostileText._refuse)  # type: ignore[assignment]

    failure = failure_of(Hostile("lost", [ValueError()]), job="j")
    assert failure.traceback == f"{failure.exception}: its traceback can't be shown: RuntimeError\n"


def test_text_with_nul_and_lone_surrogates_goes_through_and_can_be_stored() -> None:
    def body() -> None:
        raise ValueError("a\0b\ud800c")

    failure = failure_by(body)
    assert failure.reason == "a\0b\ud800c"
    assert clean(failure.reason) == "a\N{REPLACEMENT CHARACTER}b?c"
    assert clean(failure.traceback).endswith("ValueError: a\N{REPLACEMENT CHARACTER}b?c\n")


# -- too much of it


def test_unbounded_recursion_keeps_the_newest_frames() -> None:
    def dive(depth: int) -> int:
        return dive(depth + 1) + 1

    failure = failure_by(lambda: dive(0))
    assert failure.exception == "builtins.RecursionError"
    assert "maximum recursion depth exceeded" in failure.reason
    lines = failure.traceback.splitlines()
    assert lines[1].endswith("frames left out")
    assert int(lines[1].split()[1]) > 500
    assert "in dive" in lines[2]
    assert len(failure.traceback) < 1_000


def test_a_memory_error_is_a_failure_like_another() -> None:
    def body() -> None:
        raise MemoryError

    failure = failure_by(body)
    assert failure.reason == "MemoryError"
    assert failure.traceback.endswith("raise MemoryError\nMemoryError\n")


def test_a_chain_of_ten_thousand_links_is_cut() -> None:
    error = ValueError("link 0")
    for number in range(1, 10_000):
        following = ValueError(f"link {number}")
        following.__cause__ = error
        error = following
    lines = failure_of(error, job="j").traceback.splitlines()
    assert lines[0] == "… what came before is left out"
    assert lines[1] == "ValueError: link 9992"
    assert lines[-1] == "ValueError: link 9999"


def test_a_chain_that_bites_its_tail_ends() -> None:
    first, second = ValueError("first"), ValueError("second")
    first.__cause__, second.__cause__ = second, first
    assert failure_of(first, job="j").traceback == (
        "ValueError: second\n"
        "\nThe above exception was the direct cause of the following exception:\n\n"
        "ValueError: first\n"
    )


def test_an_exception_that_caused_itself_is_told_once() -> None:
    error = ValueError("alone")
    error.__cause__ = error
    assert failure_of(error, job="j").traceback == "ValueError: alone\n"


def test_five_megabytes_of_text_are_cut_with_a_mark() -> None:
    failure = failure_of(ValueError("x" * 5_000_000), job="j")
    assert failure.reason == f"{'x' * 1_000}… (5000000 characters)"
    assert len(failure.traceback) < 1_100


def test_a_traceback_of_five_megabytes_keeps_its_beginning_and_most_of_its_end() -> None:
    source = f"def long():\n    {'x' * 5_000_000}\n"
    scope: dict[str, Any] = {"__name__": "elsewhere", "__loader__": Loader(source)}
    exec(compile(source, "elsewhere.py", "exec"), scope)
    failure = failure_by(scope["long"])
    assert len(failure.traceback) == 20_000
    assert failure.traceback.startswith("Traceback (most recent call last):\n")
    assert "\n…\n" in failure.traceback
    assert failure.traceback.endswith("xxx' is not defined\n")


class Loader:
    """Gives traceback the source of code that is in no file."""

    def __init__(self, source: str) -> None:
        self._source = source

    def get_source(self, name: str) -> str:
        return self._source


# -- frames


def test_frames_of_ours_before_the_performers_are_left_out() -> None:
    scope: dict[str, Any] = {"__name__": "django_jobs.runner.run", "sell": sell}
    exec("def run():\n    sell()\n", scope)
    failure = failure_by(scope["run"])
    assert ", in run" in failure.traceback
    error = raised_by(scope["run"])
    assert error.__traceback__ is not None
    ours = failure_of(error.with_traceback(error.__traceback__.tb_next), job="j")
    assert ", in run" not in ours.traceback
    assert ", in sell" in ours.traceback


def test_frames_of_ours_are_shown_where_there_are_no_others() -> None:
    scope: dict[str, Any] = {"__name__": "django_jobs.runner.run"}
    exec("def run():\n    1 / 0\n", scope)
    error = raised_by(scope["run"])
    assert error.__traceback__ is not None
    alone = failure_of(error.with_traceback(error.__traceback__.tb_next), job="j")
    assert ", in run" in alone.traceback


def test_a_module_without_a_name_does_no_harm() -> None:
    for name in (None, 5, HostileText("hidden")):
        scope: dict[str, Any] = {"__name__": name}
        exec("def run():\n    1 / 0\n", scope)
        assert failure_by(scope["run"]).traceback.endswith("ZeroDivisionError: division by zero\n")


def test_no_local_variable_gets_out() -> None:
    def body() -> None:
        password = "s3cret"
        raise ValueError(len(password))

    failure = failure_by(body)
    assert "s3cret" not in repr(failure)


# -- fingerprints


def test_the_same_place_gives_the_same_fingerprint_whatever_the_text() -> None:
    def pick(name: str) -> None:
        raise OutOfStock(f"no more {name}")

    first, second = failure_by(lambda: pick("apples")), failure_by(lambda: pick("pears"))
    assert first.reason != second.reason
    assert first.fingerprint == second.fingerprint
    assert len(first.fingerprint) == 40


def test_another_place_job_or_class_gives_another_fingerprint() -> None:
    def sell_nothing() -> None:
        raise ValueError("no more apples")

    fingerprints = {
        failure_by(sell).fingerprint,
        failure_by(sell_another).fingerprint,
        failure_by(sell_nothing).fingerprint,
        failure_of(raised_by(sell), job="shop.sell").fingerprint,
        failure_of(OutOfStock(), job="shop.greet").fingerprint,
    }
    assert len(fingerprints) == 5


def test_fingerprints_are_made_of_any_text() -> None:
    assert fingerprint_of("a\0", "\ud800", "") == "cee5a7fe0781e661f2bccc9507013dba9405ab7a"


# -- any value


def test_a_value_is_shown_as_plain_text() -> None:
    assert shown(5) == "5"
    assert shown("") == ""
    assert shown(None) == "None"
    assert shown(Unshowable()) == "Unshowable (its text can't be shown: RuntimeError)"
    assert shown(builtins) == "<module 'builtins' (built-in)>"
