"""What all sub-commands of `manage.py jobs` have in common."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime

import pytest
from django.core.management import CommandError, call_command
from django.core.management.color import color_style, no_style
from django.db import ProgrammingError
from django.test import override_settings

from django_jobs.cli.subs import Answer, Sub, as_json, table, wrapped
from django_jobs.management.commands import jobs as command

Jobs = Callable[..., str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    name: str
    at: datetime | None


def test_a_table_has_columns_that_fit_their_cells() -> None:
    assert table(("NAME", "QUEUE"), [("shop.report", "default"), ("a", "-")], no_style()) == [
        "NAME         QUEUE",
        "shop.report  default",
        "a            -",
    ]


def test_a_table_is_100_characters_wide_at_the_most() -> None:
    lines = table(("NAME", "QUEUE"), [("n" * 200, "q" * 20)], no_style())
    assert lines == ["NAME" + " " * 76 + "QUEUE", "n" * 77 + "…" + "  " + "q" * 20]
    assert len(lines[1]) == 100


def test_a_table_may_be_cut_elsewhere() -> None:
    lines = table(("NAME", "WHY"), [("n" * 20, "w" * 200)], no_style(), cut=1)
    assert lines[1] == "n" * 20 + "  " + "w" * 77 + "…"


def test_heads_are_coloured_where_colours_are() -> None:
    [head, _] = table(("NAME",), [("a",)], color_style(force_color=True))
    assert head.startswith("\x1b[")


def test_long_sentences_are_broken_behind_their_indent() -> None:
    assert list(wrapped("word " * 30, indent="    ")) == [
        "    " + "word " * 18 + "word",
        "    " + "word " * 10 + "word",
    ]


def test_values_between_rooms_are_objects_in_json_and_instants_are_iso_8601() -> None:
    data = {
        "found": [Fact(name="é", at=datetime(2026, 3, 1, tzinfo=UTC)), Fact(name="b", at=None)],
        "on": date(2026, 3, 1),
    }
    assert json.loads(as_json(data)) == {
        "found": [{"name": "é", "at": "2026-03-01T00:00:00+00:00"}, {"name": "b", "at": None}],
        "on": "2026-03-01",
    }
    assert "é" in as_json(data)


def test_without_a_sub_command_it_says_what_there_is(jobs: Jobs) -> None:
    with pytest.raises(CommandError, match="sub-command"):
        jobs()


def test_an_unknown_sub_command_is_told_with_those_that_are(jobs: Jobs) -> None:
    with pytest.raises(CommandError, match=r"invalid choice: 'shedules'.*schedules"):
        jobs("shedules")


def test_what_all_commands_understand_may_stand_before_or_behind(jobs: Jobs) -> None:
    line = ("schedules", "preview", "* * * * *", "--count", "1")
    assert json.loads(jobs("--json", *line))["cron"] == "* * * * *"
    assert json.loads(jobs(*line, "--json", "-v", "0"))["cron"] == "* * * * *"
    assert json.loads(jobs("schedules", "--json", *line[1:], "--no-color"))["cron"] == "* * * * *"


def test_the_variable_no_color_is_heard(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("django.core.management.base.color_style", lambda _=False: color_style(force_color=True))
    monkeypatch.setattr(command, "SUBS", (_HEADED,))
    assert jobs("headed", no_color=False).startswith("\x1b[")
    monkeypatch.setenv("NO_COLOR", "1")
    assert jobs("headed", no_color=False) == "A\nb\n"


_HEADED = Sub(name="headed", help="", run=lambda _, style: Answer(lines=table(("A",), [("b",)], style), data=None))


def test_the_code_of_an_answer_is_that_of_the_command(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    ill = Sub(name="ill", help="", run=lambda *_: Answer(lines=["ill"], data="ill", code=3))
    monkeypatch.setattr(command, "SUBS", (ill,))
    with pytest.raises(SystemExit) as ended:
        jobs("ill")
    assert ended.value.code == 3


def test_a_database_without_tables_is_told_in_one_line(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: object) -> object:
        raise ProgrammingError("relation does not exist\nLINE 1")

    monkeypatch.setattr("django_jobs.reports.schedules", missing)
    with pytest.raises(CommandError) as told:
        jobs("schedules")
    assert str(told.value) == (
        "the database can't be asked: relation does not exist LINE 1; is `manage.py migrate` done?"
    )
    assert told.value.returncode == 1


def test_wrong_settings_are_told_without_a_traceback(jobs: Jobs) -> None:
    with override_settings(DJANGO_JOBS={"TIME_ZONE": "Mars/Base"}), pytest.raises(CommandError, match="Mars/Base"):
        jobs("schedules", "preview", "* * * * *")


def test_help_names_every_sub_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        call_command("jobs", "--help")
    shown = capsys.readouterr().out
    assert all(sub.name in shown and sub.help[:30] in " ".join(shown.split()) for sub in command.SUBS)
