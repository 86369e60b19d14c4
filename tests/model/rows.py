"""The statements of the store as the life model has them, and the real decisions that they write.

What each of them does to a row is compared with the real statements by the replay. Every change is held against the
table of moves, and against what is true of the claim.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from math import ceil

from django_jobs import records, transitions
from django_jobs.outcomes import Cancelled, Outcome, Released, Snoozed, Succeeded
from django_jobs.records import Claim, Failure, HeldRow
from django_jobs.states import State
from django_jobs.transitions import MOVES, Change, Place
from tests.factories import NOON, seconds
from tests.model.world import LAPSED, Hand, Lease, Mistake, Picture, Row, Setting, Tale, World

TICK = seconds(15)
"""A quarter of a lease."""

UNANSWERED = Failure(kind="interrupted", reason="the claim got no answer")
DIED = Failure(kind="crash", reason="its process died")
OVER = Failure(kind="lapse", reason="its lease ran out")
RAISED = Failure(kind="error", reason="no such customer", exception="builtins.ValueError")
TIMED_OUT = Failure(kind="timeout", reason="timed out", exception=transitions.TIMEOUT)

ONLY_MOVES = "a row makes only moves of the table"
ONLY_ITS_CLAIM = "the end of a claim is written under its own token"
WRITTEN_ONCE = "a claim comes to its end once"
CHARGED_RIGHTLY = "an attempt is counted exactly where a body had its chance"
STARTS_ONCE = "a job with restart=False that had started doesn't come back by itself"


# -- the real decisions


@cache
def claim_of(setting: Setting, hand: Hand) -> Claim:
    """Give the claim that a worker has in hand, as the real records have it."""
    return Claim(
        lease=records.Lease(hand.lease[0] + 1, hand.lease[1]), name="model.job", queue="default", priority=0, args="[]",
        kwargs="{}", meta="{}", attempt=hand.attempt, max_attempts=hand.max_attempts, crashes=hand.crashes,
        max_crashes=setting.max_crashes, alone=hand.alone, restart=setting.restart, timeout=300.0, keep=setting.keep,
        schedule=None, waiting_key=None, on_failure="", instants=(NOON, NOON, NOON, NOON, None),
    )  # fmt: skip


@cache
def held_row(setting: Setting, row: Picture) -> HeldRow:
    """Give a row that somebody read, as the real records have it."""
    return HeldRow(
        id=row.job + 1, token=row.token, state=State(row.state), worker=str(row.worker), name="model.job",
        queue="default", attempts=row.attempts, max_attempts=row.max_attempts, crashes=row.crashes,
        max_crashes=setting.max_crashes, alone=row.alone, restart=setting.restart,
    )  # fmt: skip


def outcome_of(claim: Claim, word: str) -> Outcome:
    """Give what a run came to."""
    outcomes: dict[str, Outcome] = {
        "ok": Succeeded(),
        "snooze": Snoozed(delay=TICK),
        "lost": Released(started=True),
        "unstarted": Released(started=False),
        "cancelled": Cancelled(reason="cancelled while it ran"),
    }
    if word in ("fail", "timeout"):
        failure = RAISED if word == "fail" else TIMED_OUT
        return transitions.after_failure(claim, failure, delay=TICK)
    return outcomes[word]


@cache
def settled(setting: Setting, hand: Hand) -> Change:
    """Decide what an ended body makes of its job."""
    claim = claim_of(setting, hand)
    return transitions.settle(claim, outcome_of(claim, hand.outcome))


@cache
def reclaimed(setting: Setting, row: Picture, *, shared: bool) -> Change:
    """Decide about a row whose lease was over."""
    return transitions.reclaim(held_row(setting, row), failure=OVER, shared=shared)


@cache
def disowned(setting: Setting, row: Picture) -> Change:
    """Decide about a row that an unanswered claim took."""
    return transitions.reclaim(held_row(setting, row), failure=UNANSWERED, started=False)


@cache
def buried(setting: Setting, row: Picture, *, body: str, is_late: bool, shared: bool, blamed: bool) -> Change:
    """Decide about a row of a dead process, whose board said of it that its `body` waits, runs or ended."""
    held = held_row(setting, row)
    if is_late:
        return transitions.timed_out(held, delay=TICK)
    if body == "ended":
        return transitions.hand_back(held, failure=DIED, started=Mistake.ENDED_IS_UNSTARTED not in setting.mistakes)
    runs = body == "runs"
    if not blamed:
        return transitions.hand_back(held, failure=DIED, started=runs)
    return transitions.reclaim(held, failure=DIED, started=runs, shared=shared)


# -- the statements


def place_of(row: Row | None) -> Place:
    if row is None:
        return Place.ABSENT
    return Place.STOPPING if row.state == "CANCELLED" and row.worker else Place(row.state)


def tale_of(world: World, lease: Lease) -> Tale:
    return next((tale for tale in world.tales if tale.lease == lease), Tale(lease))


def with_tale(world: World, tale: Tale) -> World:
    others = [other for other in world.tales if other.lease != tale.lease]
    return world._replace(tales=tuple(sorted([*others, tale])))


def flawed(world: World, flaw: str) -> World:
    return world if world.flaw else world._replace(flaw=flaw)


def written(world: World, job: int, row: Row | None, verb: str) -> World:
    """Write a row, as `verb`."""
    before, after = place_of(world.rows[job]), place_of(row)
    if (before, after) not in MOVES[verb]:
        world = flawed(world, f"{ONLY_MOVES}: {verb} moved it from {before.value} to {after.value}")
    return world._replace(rows=(*world.rows[:job], row, *world.rows[job + 1 :]))


def picture_of(job: int, row: Row) -> Picture:
    return Picture(job, row.token, row.state, row.worker, row.attempts, row.max_attempts, row.crashes, row.alone)


def is_lapsed(row: Row) -> bool:
    return row.lease == LAPSED or row.overdue


def claim(
    world: World, setting: Setting, life: int, token: int, *, limit: int, alone_too: bool
) -> tuple[World, list[Hand]]:
    """Take due rows, the oldest first; a suspect runs alone."""
    due = [
        (job, row)
        for job, row in enumerate(world.rows)
        if row and row.state == "READY" and row.wait == 0 and job != world.locked and (alone_too or not row.alone)
    ][:limit]
    if due and due[0][1].alone:
        due = due[:1]
    due = [(job, row) for job, row in due if not row.alone or job == due[0][0]]
    hands = []
    for job, row in due:
        counted = row.attempts + (Mistake.COUNT_AT_START not in setting.mistakes)
        taken = row._replace(state="RUNNING", token=token, worker=life, attempts=counted, lease=0)
        world = with_tale(written(world, job, taken, "claim"), Tale((job, token)))
        hands.append(Hand((job, token), row.attempts + 1, row.max_attempts, row.crashes, row.alone))
    return world, hands


def renew(world: World, leases: Iterable[Lease]) -> tuple[World, dict[Lease, str]]:
    """Make leases fresh, and give the states of the rows that are held under them."""
    answer = {}
    for job, token in leases:
        row = world.rows[job]
        if row and row.worker and row.token == token and job != world.locked:
            world = written(world, job, row._replace(lease=0), "renew")
            answer[job, token] = row.state
    return world, answer


def change(
    world: World, setting: Setting, changes: Iterable[tuple[Change, bool]], verb: str, *, lapsed: bool = False
) -> tuple[World, tuple[Lease, ...]]:
    """Write changes to rows that are RUNNING under their token, and where `lapsed` still over.

    Each comes with whether its attempt is to be counted, by all that is true.
    """
    done = []
    for one, is_counted in changes:
        job, token = one.lease.id - 1, one.lease.token
        row = world.rows[job]
        if row is None or row.state != "RUNNING" or job == world.locked:
            continue
        if lapsed:
            if (row.token != token or not is_lapsed(row)) and Mistake.RECLAIM_OLD_PICTURE not in setting.mistakes:
                continue
        elif row.token != token and not (verb == "settle" and Mistake.SETTLE_WITHOUT_TOKEN in setting.mistakes):
            continue
        world = _closed(world, setting, row, one, verb, is_counted=is_counted, lapsed=lapsed)
        done.append((job, token))
    return world, tuple(done)


def _closed(
    world: World, setting: Setting, row: Row, one: Change, verb: str, *, is_counted: bool, lapsed: bool
) -> World:
    job = one.lease.id - 1
    tale = tale_of(world, (job, row.token))
    if one.lease.token != row.token:
        world = flawed(world, ONLY_ITS_CLAIM)
    if tale.closed:
        world = flawed(world, WRITTEN_ONCE)
    if one.state is not State.FAILED and one.attempts != row.attempts - (not is_counted):
        world = flawed(world, CHARGED_RIGHTLY)
    # A timeout is a failure of the job's own, after which it may have further attempts.
    is_own = verb == "settle" or (one.failure is not None and one.failure.kind == "timeout")
    if not setting.restart and tale.started and one.state is State.READY and not is_own:
        world = flawed(world, STARTS_ONCE)
    # Only what is truly over may excuse bodies that overlap.
    is_over = lapsed and is_lapsed(row) and row.token == one.lease.token
    world = with_tale(world, tale._replace(closed=verb, lapsed=tale.lapsed or is_over))
    return written(world, job, None if one.gone else changed(row, one), verb)


def changed(row: Row, one: Change) -> Row:
    """Give the row as a change writes it."""
    return row._replace(
        state=one.state.value,
        attempts=one.attempts,
        max_attempts=one.max_attempts,
        crashes=one.crashes,
        alone=one.alone,
        wait=row.wait if one.delay is None else ceil(one.delay / TICK),
        keeping=0 if one.state is State.READY else 1,
        worker=0,
        lease=-1,
        overdue=False,
    )


def let_go(
    world: World, setting: Setting, leases: Iterable[Lease], verb: str, *, lapsed: bool = False
) -> tuple[World, tuple[Lease, ...]]:
    """End the holding of cancelled rows."""
    done = []
    for job, token in leases:
        row = world.rows[job]
        if row is None or row.state != "CANCELLED" or not row.worker or job == world.locked or row.token != token:
            continue
        if lapsed and not is_lapsed(row) and Mistake.LET_GO_OLD_PICTURE not in setting.mistakes:
            continue
        if lapsed and is_lapsed(row):
            world = with_tale(world, tale_of(world, (job, token))._replace(lapsed=True))
        world = written(world, job, row._replace(worker=0, lease=-1, overdue=False), verb)
        done.append((job, token))
    return world, tuple(done)


def cancel(world: World, setting: Setting, job: int) -> World:
    """Cancel a row that waits or runs; the latter stays held."""
    row = world.rows[job]
    if row is None or row.state not in ("READY", "RUNNING"):
        return world
    if row.state == "RUNNING":
        world = with_tale(world, tale_of(world, (job, row.token))._replace(closed="cancel"))
        if Mistake.CANCEL_LETS_GO in setting.mistakes:
            row = row._replace(worker=0, lease=-1, overdue=False)
            return world._replace(
                rows=(*world.rows[:job], row._replace(state="CANCELLED", keeping=1), *world.rows[job + 1 :])
            )
    return written(world, job, row._replace(state="CANCELLED", keeping=1), "cancel")


def retry(world: World, job: int) -> World:
    """Make a row that isn't held READY now, with an attempt left."""
    row = world.rows[job]
    if row is None or row.worker or row.state not in ("READY", "FAILED", "CANCELLED"):
        return world
    most = max(row.max_attempts, row.attempts + 1)
    return written(
        world, job, row._replace(state="READY", wait=0, keeping=0, crashes=0, alone=False, max_attempts=most), "retry"
    )


def delete(world: World, job: int) -> World:
    """Delete a row that isn't held."""
    row = world.rows[job]
    return world if row is None or row.worker else written(world, job, None, "delete")


def prune(world: World, job: int) -> World:
    """Delete a finished row whose keeping is over."""
    row = world.rows[job]
    if row is None or row.worker or row.state in ("READY", "RUNNING") or row.keeping or job == world.locked:
        return world
    return written(world, job, None, "prune")
