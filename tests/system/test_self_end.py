"""A process that can't confirm its leases ends by itself, whatever holds the interpreter then."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import time
from pathlib import Path

PATIENCE = 30.0

BEGIN = """
    import ctypes
    from django_jobs.worker.board import Board
    from django_jobs.worker.seat import Seats
    from django_jobs.worker.watch import Watch

    def hold_interpreter(seconds):
        ctypes.PyDLL(None).usleep(int(seconds * 1_000_000))

    board = Board.create(4, lease=2.0, shared=False)
    watch = Watch(board=board, seats=Seats(), lease=2.0, ends_itself=True)
    while not watch._is_armed:
        watch.tick()
    print("armed", flush=True)
"""


def run(script: str) -> subprocess.CompletedProcess[str]:
    text = textwrap.dedent(BEGIN) + textwrap.dedent(script)
    root = Path(__file__).parents[2]
    return subprocess.run(
        [sys.executable, "-c", text], cwd=root, capture_output=True, text=True, timeout=PATIENCE, check=False
    )


def test_a_process_whose_body_holds_the_interpreter_ends_before_its_leases_do() -> None:
    before = time.monotonic()
    ended = run("hold_interpreter(600)")
    assert (ended.returncode, ended.stdout) == (1, "armed\n")
    assert "Timeout (0:00:" in ended.stderr
    assert "hold_interpreter" in ended.stderr
    assert time.monotonic() - before < PATIENCE


def test_a_process_whose_leases_are_confirmed_again_lives() -> None:
    ended = run("""
        from django_jobs import clock
        board.confirm(clock.monotonic() + 2.0)
        watch.tick()
        hold_interpreter(1.5)
        print("alive")
    """)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "armed\nalive\n", "")


def test_a_process_that_has_written_everything_lives() -> None:
    ended = run("""
        watch.disarm()
        hold_interpreter(1.5)
        print("alive")
    """)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "armed\nalive\n", "")
