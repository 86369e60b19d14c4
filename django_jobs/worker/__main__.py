"""Drive: the entry of a worker process. Its supervisor starts it by exec and speaks to it through a pipe.

The first line in the pipe is the plan, as JSON; each line after it is a word. The end of the pipe means that the
supervisor is gone.
"""

from __future__ import annotations

import faulthandler
import json
import os
import signal
import sys
import threading
import traceback
from typing import Any, TextIO

import django

SWITCH_INTERVAL = 0.0005
"""Seconds after which the interpreter lets another thread have its turn; Python's own 5 ms are long for a reply that
arrives while a body computes (tried: a round trip beside a busy thread took 5.7 ms, and takes 1.1 ms)."""


def main() -> int:
    """Work as the plan in the pipe says, and give the exit code."""
    control_fd, board_fd = (int(argument) for argument in sys.argv[1:3])
    faulthandler.enable()
    # Never closed: a thread reads it until the process ends.
    control = os.fdopen(control_fd, encoding="utf-8")
    options: dict[str, Any] = json.loads(control.readline())
    _restore_python_path(options.pop("python_path"))
    django.setup()
    return _work(control, board_fd, options)


def _restore_python_path(before: str | None) -> None:
    """Leave what jobs start with the environment of the command; our own path was set when this process started."""
    os.environ.pop("PYTHONPATH", None)
    if before is not None:
        os.environ["PYTHONPATH"] = before


def _work(control: TextIO, board_fd: int, options: dict[str, Any]) -> int:
    from django_jobs import logs  # noqa: PLC0415 - models are there only after setup
    from django_jobs.worker.board import Board  # noqa: PLC0415
    from django_jobs.worker.plan import Plan  # noqa: PLC0415
    from django_jobs.worker.process import Process  # noqa: PLC0415

    sys.setswitchinterval(SWITCH_INTERVAL)
    if (level := options.pop("log_level")) is not None:
        logs.show_on_stderr(level)
    process = Process(Plan(**options), board=Board.attach(board_fd))
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: process.ask_to_stop())
    _reset_signals_in_children()
    threading.Thread(target=_listen, args=(control, process), name="django_jobs control", daemon=True).start()
    return process.run()


def _listen(control: TextIO, process: Any) -> None:
    for line in control:
        match line.split():
            case ["stop"]:
                process.ask_to_stop()
            case ["now"]:
                process.stop_now()
            case ["wake"]:
                process.wake()
            case ["back"]:
                process.come_back()
            case ["hold", count]:
                process.hold_back(int(count))
            case ["stacks"]:
                _show_stacks()
    process.stop_now()


def _reset_signals_in_children() -> None:
    """Let the children that a job forks be ended as any other process, from their first moment on."""
    stopping = (signal.SIGINT, signal.SIGTERM)
    masks = threading.local()

    def before() -> None:
        masks.before = signal.pthread_sigmask(signal.SIG_BLOCK, stopping)

    def after_in_parent() -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, masks.before)

    def after_in_child() -> None:
        for number in stopping:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, masks.before)

    os.register_at_fork(before=before, after_in_parent=after_in_parent, after_in_child=after_in_child)


def _show_stacks() -> None:
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    for ident, frame in sys._current_frames().items():  # noqa: SLF001 - documented, for debuggers
        sys.stderr.write(f"-- {names.get(ident, ident)}\n{''.join(traceback.format_stack(frame))}")
    sys.stderr.flush()


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    # Bodies that still run would keep the interpreter from ending.
    os._exit(code)
