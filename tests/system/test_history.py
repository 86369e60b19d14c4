"""The checker of histories is itself checked: a good history breaks no rule, and each seeded bug is told in words."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from django.db import connections, transaction

from django_jobs import lifecycle
from django_jobs.outcomes import Failed, Retried, Succeeded
from django_jobs.records import Claim
from django_jobs.transitions import Place
from tests.factories import claim_one, failure, new_job, queue_job, seconds, write
from tests.mill.marks import mark
from tests.system import history
from tests.system.history import RULES, Change, History, Mark, Row, figures, violations

READY = Row(state="READY")
HELD = Row(state="RUNNING", attempts=1, token=7, worker="host:11:ab", lease_until=70.0)
ENDED = Row(state="SUCCESSFUL", attempts=1, token=7, finished_at=14.0)
BACK = Row(state="READY", attempts=0, token=7, run_at=14.0)
AGAIN = Row(state="RUNNING", attempts=1, token=8, worker="host:12:cd", lease_until=80.0, run_at=14.0)
GIVEN_UP = Row(state="CANCELLED", attempts=1, token=7, finished_at=14.0)
ENDED_AGAIN = Row(state="SUCCESSFUL", attempts=1, token=8, run_at=14.0, finished_at=20.0)


def life(*steps: tuple[float, Row | None], job: int = 1, label: str = "a", name: str = "mill.short") -> list[Change]:
    """Make the changes of a job's row from what it came to at which time."""
    changes, before = [], None
    for at, row in steps:
        seq, transaction = round(at * 1000) + job, f"{at}"
        changes.append(
            Change(seq=seq, at=at, id=job, old=before, new=row, label=label, name=name, transaction=transaction)
        )
        before = row
    return changes


def body(begun: float, ended: float, word: str = "done", *, job: int = 1, token: int = 7, pid: int = 11) -> list[Mark]:
    """Make the marks of a body; one that was killed has gone on until `ended`."""
    return [
        Mark(word="begin", at=begun, pid=pid, job=job, token=token),
        Mark(word=word, at=ended, pid=pid, job=job, token=token),
    ]


def a_history(changes: list[Change], marks: list[Mark], **facts: Any) -> History:
    """Put a history together; the rows at its end are those that the changes left."""
    rows = {change.id: change.new for change in sorted(changes, key=lambda change: change.at)}
    left = {job: row for job, row in rows.items() if row is not None}
    return History(**{"changes": sorted(changes, key=lambda c: c.seq), "marks": marks, "rows": left, **facts})


COMMITTED = Mark(word="committed", at=9.0, label="a")
PLAIN = life((9.0, READY), (10.0, HELD), (14.0, ENDED))
TWICE = life((9.0, READY), (10.0, HELD), (14.0, BACK), (15.0, AGAIN), (20.0, ENDED_AGAIN))


class TestGoodHistories:
    def tells_nothing(self, good: History) -> None:
        assert violations(good) == []

    def test_a_job_runs_and_succeeds(self) -> None:
        self.tells_nothing(a_history(PLAIN, [COMMITTED, *body(11.0, 13.0)]))

    def test_a_job_goes_as_it_succeeds(self) -> None:
        self.tells_nothing(a_history(life((9.0, READY), (10.0, HELD), (14.0, None)), [COMMITTED, *body(11.0, 13.0)]))

    def test_a_job_is_renewed_released_and_run_again(self) -> None:
        renewed = replace(HELD, lease_until=80.0)
        changes = life(
            (9.0, READY), (10.0, HELD), (12.0, renewed), (14.0, BACK), (15.0, AGAIN), (20.0, ENDED_AGAIN)
        )  # fmt: skip
        marks = [COMMITTED, *body(11.0, 13.0, "left"), *body(16.0, 19.0, token=8, pid=12)]
        self.tells_nothing(a_history(changes, marks))

    def test_a_running_job_is_cancelled_and_let_go(self) -> None:
        stopping = replace(HELD, state="CANCELLED", kinds=("cancelled",))
        changes = life((9.0, READY), (10.0, HELD), (12.0, stopping), (14.0, replace(stopping, worker=None)))
        self.tells_nothing(a_history(changes, [COMMITTED, *body(11.0, 13.0, "left")]))

    def test_a_finished_job_is_retried_by_hand(self) -> None:
        failed = replace(ENDED, state="FAILED", kinds=("error",))
        again = replace(READY, attempts=1, token=7, kinds=("error",))
        changes = life(
            (9.0, READY), (10.0, HELD), (14.0, failed), (15.0, again), (16.0, replace(again, state="CANCELLED"))
        )
        self.tells_nothing(a_history(changes, [COMMITTED, *body(11.0, 13.0, "left")]))

    def test_a_frozen_body_goes_on_after_its_lease_is_over_beside_its_successor(self) -> None:
        lapsed = replace(BACK, attempts=1, crashes=1, run_at=71.0, kinds=("lapse",))
        again = replace(AGAIN, attempts=2, crashes=1, run_at=71.0, lease_until=140.0, kinds=("lapse",))
        changes = life(
            (9.0, READY),
            (10.0, HELD),
            (71.0, lapsed),
            (72.0, again),
            (80.0, replace(again, state="SUCCESSFUL", worker=None)),
        )
        marks = [COMMITTED, *body(11.0, 75.0), *body(73.0, 79.0, token=8, pid=12)]
        good = a_history(changes, marks)
        self.tells_nothing(good)
        assert (figures(good).lapses, figures(good).overlaps, figures(good).doubled) == (1, 1, 1)

    def test_a_body_ends_and_its_process_is_killed_before_the_end_is_written(self) -> None:
        marks = [COMMITTED, *body(11.0, 13.0), *body(16.0, 19.0, token=8, pid=12)]
        good = a_history(TWICE, marks, dead=frozenset({11}))
        self.tells_nothing(good)
        assert (figures(good).doubled, figures(good).deaths) == (1, 1)

    def test_a_body_that_is_interrupted_right_after_it_was_done_may_run_again(self) -> None:
        left = Mark(word="left", at=13.1, pid=11, job=1, token=7)
        self.tells_nothing(a_history(TWICE, [COMMITTED, *body(11.0, 13.0), left, *body(16.0, 19.0, token=8, pid=12)]))

    def test_a_commit_that_got_no_answer_may_have_come_to_either(self) -> None:
        self.tells_nothing(a_history([], []))
        self.tells_nothing(a_history(PLAIN, body(11.0, 13.0)))

    def test_a_rolled_back_job_does_not_appear(self) -> None:
        self.tells_nothing(a_history([], [Mark(word="rolled back", at=9.0, label="a")]))

    def test_a_job_under_which_processes_died_as_often_as_may_be_fails(self) -> None:
        failed = replace(ENDED, state="FAILED", crashes=3, kinds=("crash", "crash", "crash"))
        held = replace(HELD, crashes=2, kinds=("crash", "crash"))
        start = replace(READY, crashes=2, kinds=("crash", "crash"))
        good = a_history(
            life((9.0, start), (10.0, held), (14.0, failed)),
            [COMMITTED, *body(11.0, 13.0, "on")],
            dead=frozenset({11}),
            expected={"mill.short": frozenset({Place.SUCCESSFUL})},
        )
        self.tells_nothing(good)
        assert figures(good).died_out == 1


SEEDED: dict[str, tuple[Callable[[], History], str]] = {
    "a finished job starts again by itself": (
        lambda: a_history(
            life((9.0, READY), (10.0, HELD), (14.0, ENDED), (15.0, replace(BACK, attempts=1))),
            [COMMITTED, *body(11.0, 13.0)],
        ),
        "job 1 went from SUCCESSFUL to READY, which no verb may do",
    ),
    "a held row is deleted while it is cancelled": (
        lambda: a_history(
            life((9.0, READY), (10.0, HELD), (12.0, replace(HELD, state="CANCELLED")), (14.0, None)),
            [COMMITTED, *body(11.0, 13.0, "left")],
        ),
        "job 1 went from STOPPING to absent, which no verb may do",
    ),
    "a claim counts two attempts": (
        lambda: a_history(
            life((9.0, READY), (10.0, replace(HELD, attempts=2)), (14.0, replace(ENDED, attempts=2))),
            [COMMITTED, *body(11.0, 13.0)],
        ),
        "a claim of job 1 took its attempts from 0 to 2",
    ),
    "a token changes without a claim": (
        lambda: a_history(
            life((9.0, READY), (10.0, HELD), (14.0, replace(ENDED, token=9))), [COMMITTED, *body(11.0, 13.0)]
        ),
        "job 1 got token 9 without a claim",
    ),
    "renewing changes whose the row is": (
        lambda: a_history(
            life((9.0, READY), (10.0, HELD), (12.0, replace(HELD, worker="host:12:cd")), (14.0, ENDED)),
            [COMMITTED, *body(11.0, 13.0)],
        ),
        "job 1 was changed while worker host:11:ab held it: ",
    ),
    "a release takes two attempts back": (
        lambda: a_history(
            life((9.0, replace(READY, attempts=2)), (10.0, replace(HELD, attempts=3)), (14.0, GIVEN_UP)),
            [COMMITTED, *body(11.0, 13.0, "left")],
        ),
        "job 1 went from 3 attempts to 1 without a claim",
    ),
    "one death counts as two crashes": (
        lambda: a_history(
            life((9.0, READY), (10.0, HELD), (14.0, replace(GIVEN_UP, crashes=2))),
            [COMMITTED, *body(11.0, 13.0, "on")],
            dead=frozenset({11}),
        ),
        "job 1 went from 0 crashes to 2 at once",
    ),
    "a change was not recorded": (
        lambda: a_history([PLAIN[0], PLAIN[2]], [COMMITTED, *body(11.0, 13.0)]),
        "a change of job 1 is missing: it was left as ",
    ),
    "the last change was not recorded": (
        lambda: replace(a_history(PLAIN, [COMMITTED, *body(11.0, 13.0)]), rows={1: HELD}),
        "job 1 stands as ",
    ),
    "an id comes back": (
        lambda: a_history(
            [*life((9.0, READY), (10.0, HELD), (14.0, None)), *life((15.0, READY), (16.0, GIVEN_UP))],
            [COMMITTED, *body(11.0, 13.0)],
        ),
        "the id of job 1 came back after it was deleted",
    ),
    "a row was never inserted": (
        lambda: replace(a_history([], []), rows={5: READY}),
        "job 5 stands in the table, but was never inserted",
    ),
    "a token is drawn twice": (
        lambda: a_history(
            life((9.0, READY), (10.0, HELD), (14.0, replace(BACK, run_at=0.0)), (15.0, HELD), (20.0, ENDED)),
            [COMMITTED, *body(11.0, 19.0)],
        ),
        "job 1 was claimed 2 times under token 7",
    ),
    "two workers draw the same token": (
        lambda: a_history(
            [*PLAIN, *life((9.0, READY), (10.0, replace(HELD, worker="host:12:cd")), (14.0, ENDED), job=2, label="b")],
            [COMMITTED, *body(11.0, 13.0), *body(11.0, 13.0, job=2, pid=12)],
        ),
        "token 7 was drawn by 2 workers: host:11:ab, host:12:cd",
    ),
    "a token is used for two claim statements": (
        lambda: a_history(
            [*PLAIN, *life((9.0, READY), (10.5, HELD), (14.0, ENDED), job=2, label="b")],
            [COMMITTED, *body(11.0, 13.0), *body(11.0, 13.0, job=2)],
        ),
        "token 7 was drawn by more than one claim statement",
    ),
    "a host whose clock is fast claims too early": (
        lambda: a_history(
            life((9.0, replace(READY, run_at=300.0)), (10.0, HELD), (14.0, ENDED)),
            [COMMITTED, *body(11.0, 13.0)],
        ),
        "job 1 was claimed 290.000 s before it was due",
    ),
    "a host whose clock is fast calls a lease over": (
        lambda: a_history(
            life((9.0, READY), (10.0, HELD), (14.0, replace(BACK, attempts=1, crashes=1, kinds=("lapse",))),
                 (15.0, replace(BACK, attempts=1, crashes=1, kinds=("lapse",), state="CANCELLED"))),
            [COMMITTED, *body(11.0, 13.0, "on")],
        ),
        "job 1 was taken back as lapsed 56.000 s before its lease was over",
    ),
    "a body runs without a claim": (
        lambda: a_history(PLAIN, [COMMITTED, *body(11.0, 13.0), *body(11.0, 12.0, token=9, pid=12)]),
        "the body of job 1 under token 9 ran, but there was no such claim",
    ),
    "a body begins twice under one claim": (
        lambda: a_history(PLAIN, [COMMITTED, *body(11.0, 12.0), *body(12.5, 13.0)]),
        "the body of job 1 under token 7 began 2 times",
    ),
    "a body begins before the claim is committed": (
        lambda: a_history(PLAIN, [COMMITTED, *body(9.5, 13.0)]),
        "the body of job 1 under token 7 began 0.500 s before the claim was made",
    ),
    "a job succeeds without a body": (
        lambda: a_history(PLAIN, [COMMITTED]),
        "job 1 succeeded under token 7, but no body ended under it",
    ),
    "a job is deleted as succeeded though its body was left": (
        lambda: a_history(life((9.0, READY), (10.0, HELD), (14.0, None)), [COMMITTED, *body(11.0, 13.0, "left")]),
        "job 1 succeeded under token 7, but no body ended under it",
    ),
    "a zombie settles its successor's claim": (
        # It writes without naming its token: the row says SUCCESSFUL under 8, whose body still runs.
        lambda: a_history(
            TWICE,
            [COMMITTED, *body(11.0, 13.5), *body(16.0, 22.0, token=8, pid=12)],
            dead=frozenset({11}),
        ),
        "job 1 succeeded under token 8 before its body had ended",
    ),
    "a job that has finished is recorded as failed": (
        lambda: a_history(
            life((9.0, READY), (10.0, HELD), (14.0, replace(ENDED, state="FAILED", kinds=("error",)))),
            [COMMITTED, *body(11.0, 13.0)],
        ),
        "job 1 is recorded as failed, but the body of job 1 under token 7 had come to its end",
    ),
    "a row is released before its process is dead": (
        lambda: a_history(TWICE, [COMMITTED, *body(11.0, 14.5, "on"), *body(16.0, 19.0, token=8, pid=12)]),
        "the body of job 1 under token 7 still ran 0.500 s after the row was let go (went from RUNNING to READY)",
    ),
    "a cancel lets go at once": (
        lambda: a_history(
            life((9.0, READY), (10.0, HELD), (12.0, replace(HELD, state="CANCELLED", worker=None))),
            [COMMITTED, *body(11.0, 13.0, "left")],
        ),
        "the body of job 1 under token 7 still ran 1.000 s after the row was let go",
    ),
    "two bodies run at once": (
        lambda: a_history(TWICE, [COMMITTED, *body(11.0, 17.0, "on"), *body(16.0, 19.0, token=8, pid=12)]),
        "the body of job 1 under token 7 still ran when the one under token 8 began, and no lease was over",
    ),
    "a job runs again though nobody died": (
        lambda: a_history(TWICE, [COMMITTED, *body(11.0, 13.0), *body(16.0, 19.0, token=8, pid=12)]),
        "job 1 ran again after the body of job 1 under token 7 had come to its end in process 11, alive; it went from",
    ),
    "a job runs again before its process is killed": (
        lambda: a_history(
            TWICE,
            [COMMITTED, *body(11.0, 13.0), *body(16.0, 19.0, token=8, pid=12)],
            dead=frozenset({11}),
            died_at={11: 17.0},
        ),
        "job 1 ran again after the body of job 1 under token 7 had come to its end in process 11, alive; it went from",
    ),
    "a cancel that was answered is forgotten": (
        lambda: a_history(PLAIN, [COMMITTED, *body(11.0, 13.0), Mark(word="cancelled", at=12.0, job=1)]),
        "job 1 was cancelled, but ended as SUCCESSFUL",
    ),
    "a job is charged with a death that is yet to come": (
        lambda: a_history(
            life((9.0, READY), (10.0, HELD), (14.0, replace(BACK, crashes=1, kinds=("crash",))),
                 (15.0, replace(BACK, crashes=1, kinds=("crash",), state="CANCELLED"))),
            [COMMITTED, *body(11.0, 13.0, "left")],
            dead=frozenset({11}),
            died_at={11: 14.5},
        ),
        "job 1 was charged with the death of worker host:11:ab, which didn't die before",
    ),
    "a job is charged with the death of a process that lives": (
        lambda: a_history(
            life((9.0, READY), (10.0, HELD), (14.0, replace(BACK, crashes=1, kinds=("crash",))),
                 (15.0, replace(BACK, crashes=1, kinds=("crash",), state="CANCELLED"))),
            [COMMITTED, *body(11.0, 13.0, "left")],
        ),
        "job 1 was charged with the death of worker host:11:ab, which didn't die before",
    ),
    "a committed job is lost": (
        lambda: a_history([], [COMMITTED]),
        "the job labelled a was committed, but is there 0 times",
    ),
    "a job is inserted twice": (
        lambda: a_history(
            [*PLAIN, *life((9.0, READY), (10.0, replace(READY, state="CANCELLED")), job=2)],
            [COMMITTED, *body(11.0, 13.0)],
        ),
        "the job labelled a was committed, but is there 2 times",
    ),
    "a rolled-back job runs": (
        lambda: a_history(PLAIN, [Mark(word="rolled back", at=9.0, label="a"), *body(11.0, 13.0)]),
        "the job labelled a was rolled back, but appeared as [1]",
    ),
    "a job waits for ever": (
        lambda: a_history(PLAIN[:1], [COMMITTED]),
        "job 1 (mill.short) is stuck: READY",
    ),
    "a job is held for ever": (
        lambda: a_history(PLAIN[:2], [COMMITTED, *body(11.0, 13.0)]),
        "job 1 (mill.short) is stuck: RUNNING",
    ),
    "a cancelled job is held for ever": (
        lambda: a_history(
            life((9.0, READY), (10.0, HELD), (12.0, replace(HELD, state="CANCELLED"))),
            [COMMITTED, *body(11.0, 13.0, "left")],
        ),
        "job 1 (mill.short) is stuck: STOPPING",
    ),
    "a waiting job is deleted": (
        lambda: a_history(life((9.0, READY), (10.0, None)), [COMMITTED]),
        "job 1 (mill.short) is gone: it was deleted as READY",
    ),
    "a neighbour is failed": (
        lambda: a_history(
            life((9.0, READY), (10.0, HELD), (14.0, replace(ENDED, state="FAILED", crashes=1, kinds=("crash",)))),
            [COMMITTED, *body(11.0, 13.0, "on")],
            dead=frozenset({11}),
            expected={"mill.short": frozenset({Place.SUCCESSFUL})},
        ),
        "job 1 (mill.short) ended as FAILED",
    ),
}  # fmt: skip


@pytest.mark.parametrize("bug", SEEDED)
def test_a_seeded_bug_is_told_in_words(bug: str) -> None:
    seeded, words = SEEDED[bug]
    told = violations(seeded())
    assert any(sentence.startswith(words) for sentence in told), told


def test_every_rule_has_a_seeded_bug() -> None:
    broken = {rule for seeded, _ in SEEDED.values() for rule in RULES if list(rule(seeded()))}
    assert broken == set(RULES)


def test_a_story_tells_rows_and_bodies_in_their_order() -> None:
    told = history.story(a_history(PLAIN, body(11.0, 13.0)), 1)
    assert [line.split(":")[0].split(maxsplit=1)[1] for line in told.splitlines()] == [
        "row went from absent to READY",
        "row went from READY to RUNNING",
        "body begin",
        "body done",
        "row went from RUNNING to SUCCESSFUL",
    ]


class TestRealRows:
    """The triggers see what our verbs do, and what somebody does by hand."""

    pytestmark = pytest.mark.django_db(transaction=True)

    @pytest.fixture(autouse=True)
    def recorded(self, transactional_db: None) -> Iterator[None]:
        with history.recorded():
            yield

    @pytest.fixture
    def marks(self, tmp_path: Path) -> Path:
        return tmp_path / "marks"

    def run(self, marks: Path, *, word: str = "done") -> Claim:
        """Queue a job, claim it, and mark its body."""
        job_id = queue_job(args='["marks", "a"]')
        mark(marks, "committed", label="a")
        claim = claim_one()
        assert claim.id == job_id
        for each in ("begin", word):
            mark(marks, each, job=claim.id, token=claim.token)
        return claim

    def settle(self, claim: Claim, outcome: Any) -> None:
        assert lifecycle.settle(connections["default"], [(claim, outcome)]) == []

    def told(self, marks: Path, *, logs: tuple[str, ...] = ()) -> list[str]:
        return violations(history.read(marks, logs=logs))

    def test_verbs_break_no_rule(self, marks: Path) -> None:
        claim = self.run(marks, word="left")
        lifecycle.renew(connections["default"], [claim.lease])
        self.settle(claim, Retried(failure=failure(), delay=seconds(0)))
        claim = claim_one()
        for word in ("begin", "done"):
            mark(marks, word, job=claim.id, token=claim.token)
        self.settle(claim, Succeeded(result="5"))
        read = history.read(marks)
        assert violations(read) == []
        assert [change.move for change in read.lives[claim.id]] == [
            (Place.ABSENT, Place.READY),
            (Place.READY, Place.RUNNING),
            (Place.RUNNING, Place.RUNNING),
            (Place.RUNNING, Place.READY),
            (Place.READY, Place.RUNNING),
            (Place.RUNNING, Place.SUCCESSFUL),
        ]
        assert [change.kind for change in read.lives[claim.id]] == ["", "", "", "error", "", ""]

    def test_a_rolled_back_insert_is_not_seen(self, marks: Path) -> None:
        with transaction.atomic():
            lifecycle.enqueue(new_job(args='["marks", "b"]'), using="default")
            transaction.set_rollback(True)
        mark(marks, "rolled back", label="b")
        assert self.told(marks) == []

    def test_a_lapse_is_seen_with_the_database_time(self, marks: Path) -> None:
        claim = self.run(marks, word="left")
        write(claim.id, lease_expires_at="2020-01-01T00:00:00Z")
        assert lifecycle.reclaim(connections["default"]) == 1
        lifecycle.cancel([claim.id])
        read = history.read(marks)
        assert [change.kind for change in read.lives[claim.id] if change.kind] == ["lapse", "cancelled"]
        assert violations(read) == []

    def test_a_state_written_by_hand_is_told(self, marks: Path) -> None:
        claim = self.run(marks)
        self.settle(claim, Succeeded())
        write(claim.id, state="READY", finished_at=None)
        assert f"job {claim.id} went from SUCCESSFUL to READY, which no verb may do" in self.told(marks)

    def test_a_success_without_a_body_is_told(self, marks: Path) -> None:
        queue_job()
        claim = claim_one()
        self.settle(claim, Succeeded())
        assert self.told(marks) == [f"job {claim.id} succeeded under token {claim.token}, but no body ended under it"]

    def test_a_finished_job_recorded_as_failed_is_told(self, marks: Path) -> None:
        claim = self.run(marks)
        self.settle(claim, Failed(failure=failure()))
        [told] = self.told(marks)
        assert told.startswith(f"job {claim.id} is recorded as failed, but the body of job {claim.id}")

    def test_a_burial_before_the_death_is_told(self, marks: Path) -> None:
        claim = self.run(marks, word="on")
        died = failure(kind="crash")
        lifecycle.bury(connections["default"], "worker-1", running=[claim.lease], failure=died)
        mark(marks, "on", job=claim.id, token=claim.token)
        mark(marks, "on", job=claim.id, token=claim.token)
        lifecycle.cancel([claim.id])
        told = self.told(marks)
        assert f"job {claim.id} was charged with the death of worker worker-1, which didn't die before" in told

    def test_a_deleted_row_is_told(self, marks: Path) -> None:
        job_id = queue_job(args='["marks", "a"]')
        mark(marks, "committed", label="a")
        lifecycle.delete([job_id])
        assert self.told(marks) == [f"job {job_id} (shop.greet) is gone: it was deleted as READY"]

    def test_half_a_line_of_a_killed_process_is_passed_over(self, marks: Path) -> None:
        claim = self.run(marks)
        self.settle(claim, Succeeded())
        with marks.open("a") as file:
            file.write('\n{"word": "on", "job": 1')
        mark(marks, "on", job=claim.id, token=claim.token)
        read = history.read(marks)
        assert [each.word for each in read.marks] == ["committed", "begin", "done", "on"]

    def test_logs_say_who_died(self, marks: Path) -> None:
        log = "12:00:00 worker host:41:0a0b died: signal SIGKILL\n12:00:01 worker a:b:42:0c was ended: exit code 3\n"
        assert history.read(marks, logs=[log]).dead == {41}
