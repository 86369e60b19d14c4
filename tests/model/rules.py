"""What must hold in every state of the life model, by name."""

from __future__ import annotations

from tests.model.rows import tale_of
from tests.model.world import LAPSED, Hand, Process, Row, Setting, World

OVERLAP = "bodies of one job overlap only across a lapse or a dead process"
CONFIRMED_IS_HELD = "what a process may believe in is held"
KEEPS_EXCLUSION = "a cancelled row is held until its body has stopped"
NO_LONGER_THAN_HELD = "a board promises no more than the row's lease"
STOPS_IN_TIME = "no body goes on past its lease in a process that isn't stopped"
SUCCEEDED_TRULY = "a successful job has a body of the same token that came to its end"
COUNTERS = "counters stay within their limits"
WELL_FORMED = "a row is as the constraints say"
NOBODY_FORGETS = "a held row is known to somebody who will give it back"
NOBODY_IS_ROBBED = "nothing is reclaimed from a worker with which all is well"
STARTS_UNDER_LEASE = "a body starts only while its claim stands"
TOLD_ONCE = "what came of a claim is told once"
NO_FALSE_TELLING = "what is told of a claim is what the row says"


def wrong(world: World, setting: Setting) -> str:
    """Name the first rule that doesn't hold; '' where all do."""
    if world.flaw:
        return world.flaw
    for job, row in enumerate(world.rows):
        if row and (broken := _row(world, setting, job, row)):
            return broken
    for process in world.processes:
        if process.health != "dead":
            for hand in process.hands:
                if broken := _hand(world, process, hand):
                    return broken
    return _overlap(world)


def _row(world: World, setting: Setting, job: int, row: Row) -> str:
    if (row.state == "RUNNING") > bool(row.worker and row.token and row.lease >= 0):
        return WELL_FORMED
    if row.worker and (row.state not in ("RUNNING", "CANCELLED") or row.lease < 0):
        return WELL_FORMED
    if not (0 <= row.attempts <= row.max_attempts and 0 <= row.crashes <= setting.max_crashes):
        return COUNTERS
    if row.state == "READY" and (row.attempts == row.max_attempts or row.crashes == setting.max_crashes):
        return COUNTERS
    if row.state == "SUCCESSFUL" and not tale_of(world, (job, row.token)).succeeded:
        return SUCCEEDED_TRULY
    return NOBODY_FORGETS if row.worker and _is_forgotten(world, setting, job, row) else ""


def _is_forgotten(world: World, setting: Setting, job: int, row: Row) -> bool:
    """Say whether only the lapse of its lease will bring a row back, though somebody is there who could do it."""
    number = row.worker - 1
    process = world.processes[number]
    tale = tale_of(world, (job, row.token))
    if tale.lapsed or tale.unforeseen or row.lease == LAPSED or row.overdue:
        return False
    if process.health == "dead":
        return process.buried and world.supervisors[setting.supervisor_of[number]].health != "dead"
    on_board = any(hand.lease == (job, row.token) for hand in process.hands)
    is_asked = process.asked is not None and process.asked.token == row.token
    return not (on_board or is_asked or process.unanswered == row.token)


def _hand(world: World, process: Process, hand: Hand) -> str:
    if hand.body != "runs" or hand.lost or tale_of(world, hand.lease).lapsed:
        return ""
    row = world.rows[hand.lease[0]]
    is_held = row is not None and row.worker and row.token == hand.lease[1]
    if not is_held:
        if process.confirmed >= LAPSED:
            return ""
        return KEEPS_EXCLUSION if row is None or row.state == "CANCELLED" else CONFIRMED_IS_HELD
    assert row is not None
    is_locked = world.locked == hand.lease[0] or any(
        hand.lease in (*supervisor.keeper.locked, *supervisor.keeper.missing, *supervisor.keeper.leases)
        for supervisor in world.supervisors
    )
    return NO_LONGER_THAN_HELD if row.lease > process.confirmed and not is_locked else ""


def _overlap(world: World) -> str:
    running: dict[int, list[int]] = {}
    for process in world.processes:
        if process.health != "dead":
            for hand in process.hands:
                if hand.body == "runs":
                    running.setdefault(hand.lease[0], []).append(hand.lease[1])
    for job, tokens in running.items():
        for token in sorted(tokens)[:-1]:
            if not tale_of(world, (job, token)).lapsed:
                return OVERLAP
    return ""


def is_good_end(world: World, setting: Setting) -> bool:
    """Say whether each job has ended, or waits for a worker that the story is too short to have."""
    if not world.queued:
        return False
    no_more = world.tokens >= setting.claims or all(process.health != "up" for process in world.processes)
    return all(not row or not (row.worker or (row.state == "READY" and not no_more)) for row in world.rows)


def told(world: World) -> str:
    """Say in one line how things stand."""
    return " · ".join(
        [
            *(f"job {job + 1} {_row_told(row, queued=world.queued)}" for job, row in enumerate(world.rows)),
            *(
                f"worker {'AB'[number]} {_process_told(process)}"
                for number, process in enumerate(world.processes)
                if process != Process()
            ),
            *(
                f"supervisor {number + 1} is {supervisor.health}"
                for number, supervisor in enumerate(world.supervisors)
                if supervisor.health != "up"
            ),
            *([f"chores have read {len(world.reclaimer.rows)} lapsed rows"] if world.reclaimer else []),
            *(["a claim is still under way"] if world.air else []),
            *([f"somebody locks job {world.locked + 1}"] if world.locked >= 0 else []),
        ]
    )


def _row_told(row: Row | None, *, queued: bool) -> str:
    if row is None:
        return "is gone" if queued else "isn't there yet"
    by = f" by {'AB'[row.worker - 1]} under token {row.token}, its lease {row.lease}/4 old" if row.worker else ""
    wait = ", not due yet" if row.wait else ""
    return (
        f"{row.state} (attempt {row.attempts} of {row.max_attempts}, {row.crashes} crashes{wait}){by and ' held'}{by}"
    )


def _process_told(process: Process) -> str:
    words = [process.health, f"confirmed {process.confirmed}/4 ago"]
    words += [
        f"job {hand.lease[0] + 1} under token {hand.lease[1]} {hand.body}"
        + (f" ({hand.outcome})" if hand.outcome else "")
        + (f", interrupted ({hand.sent})" if hand.sent else "")
        + (", flagged lost" if hand.lost else "")
        + (", flagged cancelled" if hand.cancelled else "")
        + (", late" if hand.late else "")
        for hand in process.hands
    ]
    if process.asked:
        words.append(f"the answer to claim {process.asked.token} is on its way")
    if process.unanswered:
        words.append(f"claim {process.unanswered} got no answer")
    if process.step:
        words.append(f"in the midst of {process.step.verb}, next: {process.step.at}")
    if process.closing:
        words.append("stopping at once" if process.losing else "closing")
    return f"[{', '.join(words)}]"
