"""Load for fault runs: jobs queued, rolled back and cancelled while somebody plays the faults; then the reckoning."""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import random
import re
import secrets
import signal
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event, Thread
from typing import Any

from django.db import Error, connections, transaction
from django.db.models import Q

from django_jobs import lifecycle
from django_jobs.exceptions import VerbRefused
from django_jobs.models import Job
from django_jobs.models.fields import DatabaseNow
from django_jobs.performers import AnyPerformer
from django_jobs.transitions import Place
from tests.mill import jobs
from tests.mill.marks import mark
from tests.system import history
from tests.system.history import Figures, History, Rule
from tests.system.processes import Worker, until, workers_of

LIVE = {"LEASE": "3s", "BACKOFF": "tests.yard.backoffs.soon", "TIMEOUT_GRACE": "1s"}
"""DJANGO_JOBS of the workers. Leases are short, so that runs are; where one lapses since the machine is busy, the
history shows it."""

LONGEST_END = 120.0
"""Seconds that the last jobs may take to end, after the faults; never how long good ones take."""

OCCUPYING = 3
"""Priority of jobs that are queued so that workers are occupied: above that of the load."""

PAST_RECLAIM = 1.5
"""After so many times a lease in silence its jobs were taken back, if another supervisor works: it must see them lapsed
in two looks, which are a quarter of a lease apart."""

Mix = tuple[tuple[int, AnyPerformer, tuple[float, float] | None], ...]
"""How often which job is queued, and how long it takes, from and to, if that can be said."""

ORDINARY: Mix = (
    (10, jobs.short, None),
    (4, jobs.medium, (0.05, 0.5)),
    (2, jobs.medium_async, (0.05, 0.5)),
    (2, jobs.kept_for_no_time, None),
    (2, jobs.asking, None),
    (1, jobs.failing, None),
    (2, jobs.failing_first, None),
    (1, jobs.snoozing, None),
    (1, jobs.quitting, None),
    (2, jobs.victim, (0.1, 0.6)),
)

SUCCESSFUL = frozenset({Place.SUCCESSFUL})

EXPECTED: dict[str, frozenset[Place]] = {
    "tests.mill.short": SUCCESSFUL,
    "tests.mill.medium": SUCCESSFUL,
    "tests.mill.medium_async": SUCCESSFUL,
    "tests.mill.kept_for_no_time": SUCCESSFUL,
    "tests.mill.asking": SUCCESSFUL,
    "tests.mill.failing": frozenset({Place.FAILED}),
    "tests.mill.failing_first": SUCCESSFUL,
    "tests.mill.snoozing": SUCCESSFUL,
    "tests.mill.quitting": frozenset({Place.CANCELLED}),
    "tests.mill.victim": frozenset({Place.CANCELLED, Place.SUCCESSFUL}),
    "tests.mill.tells_time": SUCCESSFUL,
    "tests.mill.exits": frozenset({Place.FAILED}),
    "tests.mill.crashes": frozenset({Place.FAILED}),
    "tests.mill.is_killed": frozenset({Place.FAILED}),
    "tests.mill.eats_memory": frozenset({Place.FAILED}),
    "tests.mill.holds_interpreter": SUCCESSFUL,
    "tests.mill.holds_interpreter_past_deadline": frozenset({Place.FAILED}),
    "tests.mill.runs_on": frozenset({Place.FAILED}),
    "tests.mill.sleeps_in_c": frozenset({Place.FAILED}),
    "tests.mill.waits_for_file": SUCCESSFUL,
}
"""How the jobs may end; also FAILED where their process died under them as often as they may."""


class _RolledBackError(Exception):
    """Ends a transaction without a commit."""


class Enqueuer:
    """A thread that queues jobs, a few to a transaction; every fourth transaction is rolled back.

    It notes what it did outside the database. A commit that got no answer is noted as neither.
    """

    def __init__(self, marks: Path, *, name: str, mix: Mix, seed: int, pause: float) -> None:
        self._marks = marks
        self._name = name
        self._mix = mix
        self._random = random.Random(seed)
        self._pause = pause
        self._count = 0
        self._victims: list[int] = []
        self._stopped = Event()
        self._thread = Thread(target=self._work, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()

    def _work(self) -> None:
        try:
            while not self._stopped.wait(self._random.uniform(0, 2 * self._pause)):
                try:
                    self._queue_some()
                    self._cancel_one()
                except Error:
                    connections["default"].close()
        finally:
            connections["default"].close()

    def _queue_some(self) -> None:
        labels = [self._new_label() for _ in range(self._random.randint(1, 5))]
        is_kept = self._random.random() < 0.75
        victims = []
        with suppress(_RolledBackError):
            with transaction.atomic():
                for label in labels:
                    victims += self._queue(label)
                if not is_kept:
                    raise _RolledBackError
            for label in labels:
                mark(self._marks, "committed", label=label)
            self._victims += victims
            return
        for label in labels:
            mark(self._marks, "rolled back", label=label)

    def _queue(self, label: str) -> list[int]:
        [(_, performer, length)] = self._random.choices(self._mix, [share for share, _, _ in self._mix])
        more = () if length is None else (self._random.uniform(*length),)
        enqueuer = performer.after(self._random.uniform(0.1, 1.5)) if self._random.random() < 0.1 else performer
        job = enqueuer.using(priority=self._random.randint(-2, 2)).later(str(self._marks), label, *more)
        return [job.pk] if performer is jobs.victim else []

    def _new_label(self) -> str:
        self._count += 1
        return f"{self._name}-{self._count}"

    def _cancel_one(self) -> None:
        if self._victims and self._random.random() < 0.5:
            with suppress(VerbRefused):
                victim = self._victims.pop(0)
                lifecycle.cancel_one(victim, reason="as planned")
                mark(self._marks, "cancelled", job=victim)


class FaultRun:
    """Some supervisors under load, whoever plays the faults, and what came of it."""

    def __init__(
        self, folder: Path, *, name: str, seconds: float, seed: int, jobs: dict[str, Any] | None = None
    ) -> None:
        self.marks = folder / "marks"
        self.name = name
        self.options: dict[str, Any] = dict(LIVE)
        self.seconds = seconds
        self.seed = seed
        self.random = random.Random(seed)
        self.supervisors: list[Worker] = []
        self.played: Counter[str] = Counter()
        self.exit_codes: list[int] = []
        self.exit_times: list[float] = []
        self.history = History(changes=[])
        self._folder = folder
        self._processes: dict[Worker, int] = {}
        self._number = 0
        self._logs: list[Path] = []
        self._orphans: set[int] = set()

    # -- supervisors and their workers

    def start(self, *arguments: str, before: Sequence[str] = ()) -> Worker:
        """Start a supervisor, and wait until all its workers say that they work."""
        worker = self.begin(*arguments, before=before)
        self.wait_until_working(worker)
        return worker

    def begin(self, *arguments: str, before: Sequence[str] = ()) -> Worker:
        """Start a supervisor; the words `before` its own say where."""
        self._number += 1
        name = f"supervisor-{self._number}"
        worker = Worker(self._folder, *arguments, jobs=self.options, name=name, before=before)
        self._logs.append(worker.log)
        self._processes[worker] = (
            int(arguments[arguments.index("--processes") + 1]) if "--processes" in arguments else 1
        )
        self.supervisors.append(worker)
        return worker

    def wait_until_working(self, supervisor: Worker) -> None:
        """Wait until all its workers say that they work."""
        count = self._processes[supervisor]
        until(lambda: len(self.working(supervisor)) >= count, what=f"{supervisor.log} says that {count} work")

    def working(self, supervisor: Worker) -> list[int]:
        """Give the process ids of its workers that are alive and say that they work."""
        pids = re.findall(r"worker [^:\s]+:(\d+):\w+ · \d+ slots", supervisor.output)
        return [pid for pid in map(int, pids) if parent_of(pid) == supervisor.process.pid]

    def all_working(self) -> list[int]:
        return [pid for supervisor in self.supervisors for pid in self.working(supervisor)]

    # -- faults

    @contextmanager
    def load(self, *, mix: Mix = ORDINARY, enqueuers: int = 2, pause: float = 0.05) -> Iterator[None]:
        """Have jobs queued meanwhile."""
        # Connections may be cut; this one is opened again when it is needed.
        connections["default"].close()
        started = [
            Enqueuer(self.marks, name=f"{self.name}-{n}", mix=mix, seed=self.seed + n, pause=pause)
            for n in range(enqueuers)
        ]
        for enqueuer in started:
            enqueuer.start()
        try:
            yield
        finally:
            for enqueuer in started:
                enqueuer.stop()

    def moments(self, low: float, high: float) -> Iterator[None]:
        """Come back after random times, until the run's time is over."""
        end = time.monotonic() + self.seconds
        while (left := end - time.monotonic()) > 0:
            time.sleep(min(self.random.uniform(low, high), left))
            yield

    def in_turn(self, *kinds: str) -> Iterator[str]:
        """Give each kind in turn, all of them at least once, until the run's time is over."""
        end = time.monotonic() + self.seconds
        for number, kind in enumerate(itertools.cycle(kinds)):
            if number >= len(kinds) and time.monotonic() >= end:
                return
            time.sleep(self.random.uniform(0.1, 0.5))
            yield kind

    def queue(self, performer: AnyPerformer, *arguments: object, label: str = "", **options: Any) -> Job:
        """Queue one job beside the load."""
        label = label or f"{performer.name}-{secrets.token_hex(4)}"
        job: Job = performer.using(**options).later(str(self.marks), label, *arguments)
        mark(self.marks, "committed", label=label)
        return job

    def occupy(self, supervisor: Worker) -> None:
        """See to it that its workers are within bodies that go on for a while, so that a fault has something to hit."""
        self.wait_until_working(supervisor)
        pids = set(self.working(supervisor))
        for _ in range(8):
            self.queue(jobs.medium, self.random.uniform(1.0, 2.0), priority=OCCUPYING)
        held = Job.objects.filter(state="RUNNING", priority=OCCUPYING).values_list("worker", flat=True)
        until(lambda: pids & {history.pid_of(worker) for worker in held.all()}, what=f"workers of {pids} are occupied")

    def kill(self, pid: int) -> None:
        """Kill a worker process."""
        self._note("killed", pid)
        os.kill(pid, signal.SIGKILL)
        self.played["killed"] += 1

    def kill_supervisor(self, supervisor: Worker) -> None:
        """Kill a supervisor; its workers are then to end themselves."""
        for pid in workers_of(supervisor.process.pid):
            self._note("killed", pid)
            self._orphans.add(pid)
        supervisor.send(signal.SIGKILL)
        supervisor.wait()
        self.supervisors.remove(supervisor)
        self.played["killed supervisors"] += 1

    def kill_tree(self, supervisor: Worker) -> None:
        """Kill a supervisor with all its workers, as if the host had gone."""
        pids = workers_of(supervisor.process.pid)
        # Stopped first: it would else see its workers die.
        supervisor.send(signal.SIGSTOP)
        for pid in pids:
            self._note("killed", pid)
            os.kill(pid, signal.SIGKILL)
        supervisor.send(signal.SIGKILL)
        supervisor.wait()
        self.supervisors.remove(supervisor)
        self.played["killed trees"] += 1

    def freeze(self, *pids: int) -> None:
        """Stop processes until they are thawed."""
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)
                self.played["frozen processes"] += 1

    def thaw(self, *pids: int) -> None:
        """Have frozen processes go on."""
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

    def stop(self, supervisor: Worker) -> int:
        """Stop a supervisor as an operator does, and give its exit code."""
        begun = time.monotonic()
        supervisor.send(signal.SIGTERM)
        code = supervisor.wait()
        self.exit_times.append(time.monotonic() - begun)
        self.exit_codes.append(code)
        self.supervisors.remove(supervisor)
        return code

    def _note(self, word: str, pid: int) -> None:
        mark(self.marks, word, pid=pid)

    # -- the reckoning

    def wait_for_the_end(self) -> None:
        """Wait until every job has come to an end; what is held back after a crash is hurried."""
        give_up = time.monotonic() + LONGEST_END
        while self._is_unfinished() and time.monotonic() < give_up:
            self.hurry()
            time.sleep(0.1)

    def _is_unfinished(self) -> bool:
        with suppress(Error):
            return Job.objects.filter(Q(state__in=("READY", "RUNNING")) | Q(worker__isnull=False)).exists()
        connections["default"].close()
        return True

    def hurry(self) -> None:
        """Have what waits for its time run now: after its second crash a job is held back for 15 s."""
        with suppress(Error):
            if Job.objects.ready().filter(run_at__gt=DatabaseNow()).update(run_at=DatabaseNow()):
                lifecycle.notify(connections["default"], ["default"])

    def finish(self) -> History:
        """Wait for the end, stop all supervisors, and read the history."""
        connections["default"].close()
        self.wait_for_the_end()
        for supervisor in list(self.supervisors):
            self.stop(supervisor)
        until(lambda: not any(map(is_alive, self._orphans)), what="orphaned workers have ended")
        logs = (log.read_text() for log in self._logs)
        return history.read(self.marks, logs=logs, expected=EXPECTED)

    def abandon(self) -> None:
        """End what still runs."""
        for supervisor in self.supervisors:
            self.thaw(supervisor.process.pid, *workers_of(supervisor.process.pid))
            supervisor.end()

    def check(self, *, excused: tuple[Rule, ...] = ()) -> Figures:
        """Finish, print the figures, and fail with the violations in words; but for rules that are `excused`."""
        self.history = read = self.finish()
        found = history.violations(read, [rule for rule in history.RULES if rule not in excused])
        figures = history.figures(read)
        self._report(figures)
        shown = [*found[:20], *self._stories(read, found[:5])]
        assert not found, f"{len(found)} violations, seed {self.seed}:\n" + "\n".join(shown)
        assert set(self.exit_codes) <= {0}, f"supervisors that were stopped ended with {self.exit_codes}"
        return figures

    def _stories(self, read: History, found: list[str]) -> Iterator[str]:
        for number in {int(number) for sentence in found for number in re.findall(r"job (\d+)", sentence)}:
            yield f"the life of job {number}:\n{history.story(read, number)}"

    def _report(self, figures: Figures) -> None:
        vendor = connections["default"].vendor
        facts = {"run": self.name, "database": vendor, "seconds": self.seconds, "seed": self.seed}
        facts |= {"played": dict(self.played), **dataclasses.asdict(figures)}
        if self.exit_times:
            facts["longest_exit"] = round(max(self.exit_times), 2)
        self.tell(facts)

    def tell(self, facts: dict[str, Any]) -> None:
        """Print figures, and add them to the file that FAULT_FIGURES names."""
        print(json.dumps(facts))
        if file := os.environ.get("FAULT_FIGURES"):
            with Path(file).open("a") as lines:
                lines.write(f"{json.dumps(facts)}\n")


@contextmanager
def fault_run(folder: Path, name: str, *, seconds: float) -> Iterator[FaultRun]:
    """Record a run from here on, and leave nothing of it behind. FAULT_SEED repeats one."""
    seed = int(os.environ.get("FAULT_SEED") or secrets.randbits(32))
    print(f"{name}: seed {seed}")
    run = FaultRun(folder, name=name, seconds=seconds, seed=seed)
    with history.recorded():
        try:
            yield run
        finally:
            run.abandon()


# -- processes


def parent_of(pid: int) -> int:
    """Give the parent of a process; 0 where it is gone, or dead and not yet reaped."""
    try:
        _, _, rest = Path(f"/proc/{pid}/stat").read_text().rpartition(")")
    except OSError:
        return 0
    state, parent = rest.split()[:2]
    return 0 if state == "Z" else int(parent)


def is_alive(pid: int) -> bool:
    return parent_of(pid) > 0
