"""Decide: the error tree, and the words a performer may raise. No database, no settings.

Exception
├── JobsError                   everything this package raises to its callers
│   ├── UnencodableValue        (TypeError) an argument or result that can't be stored, with its path
│   ├── ArgumentsTooLarge       (ValueError) more than MAX_ARGS_BYTES
│   ├── UndecodableValue        (ValueError) stored text that doesn't give a value back
│   ├── InstanceGone            (LookupError) the model instance that a stored value refers to is no longer there
│   ├── UnknownPerformer        (LookupError) no performer has that name
│   ├── RunFailed               a job that its caller ran has failed, and no exception says why
│   ├── DuplicateJob            another job holds the key, and the call said `on_duplicate="raise"`
│   ├── KeyContended            whoever held the key was gone again each time that was looked
│   ├── WaitEnded               a job that somebody waited for has come to another end than success
│   │   ├── WaitFailed          it has failed for good
│   │   ├── WaitCancelled       it was cancelled, has expired or was superseded
│   │   └── WaitGone            its row is no longer there
│   ├── LeaseLost               a consumer's claim of a pushed row holds no more
│   └── VerbRefused             a verb by hand that doesn't fit the job's state
│       ├── JobGone             no such row any more
│       ├── JobWaiting          it hasn't come to its end
│       ├── JobRunning          its body runs
│       │   └── JobStopping     it was cancelled, and its body may still be running
│       ├── JobFinished         it has failed or been cancelled already
│       │   └── JobSucceeded    it has succeeded
│       └── KeyHeld             another job holds its key
└── ControlWord                 what a performer may raise, or return, to say how the run ends
    ├── Retry                   again after the backoff, or `after`
    ├── Snooze                  not now; the attempt isn't counted
    ├── Cancel                  no longer needed
    └── GiveUp                  failed, no further attempts
BaseException
└── Interruption                what the worker raises into a running performer; `except Exception` doesn't catch it
    ├── JobTimeout              its time is over
    ├── JobCancelled            somebody cancelled the job
    └── JobLost                 this worker may no longer hold the job, or must stop
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from django_jobs import durations


class JobsError(Exception):
    """The root of the errors that this package raises to its callers."""


class UnencodableValue(JobsError, TypeError):
    """A value that can't be stored as an argument or result; `path` says where in it."""

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(f"{path}: {problem}")
        self.path = path
        self.problem = problem


class ArgumentsTooLarge(JobsError, ValueError):
    """Encoded arguments above the limit."""


class UndecodableValue(JobsError, ValueError):
    """Stored text that doesn't give a value back; `path` says where in it."""

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(f"{path}: {problem}")
        self.path = path
        self.problem = problem


class InstanceGone(JobsError, LookupError):
    """A model instance that a stored value refers to; `label` and `pk` say which."""

    def __init__(self, label: str, pk: object) -> None:
        super().__init__(f"the {label} {pk!r:.80} no longer exists")
        self.label = label
        self.pk = pk


class UnknownPerformer(JobsError, LookupError):
    """No performer has that name or alias in this process."""


class RunFailed(JobsError):
    """A job that was run at once, or by a test, has failed without an exception: nobody knows its name, for one."""


class DuplicateJob(JobsError):
    """Another job holds the key, and `on_duplicate="raise"` was said; nothing was queued.

    The key may be made of arguments, so `key` has it and the message doesn't.
    """

    def __init__(self, key: str, *, holder_id: int) -> None:
        super().__init__(f"job {holder_id} holds the key of this job of {_performer_of(key)}, so it was not queued")
        self.key = key
        self.holder_id = holder_id


class KeyContended(JobsError):
    """Jobs that held the key came and went faster than one of them could be found; nothing was queued. Try again."""

    def __init__(self, key: str, *, tries: int) -> None:
        super().__init__(
            f"whoever held the key of this job of {_performer_of(key)} was gone again {tries} times; try again"
        )
        self.key = key


class LeaseLost(JobsError):
    """A consumer's claim of a pushed row holds no more, so nothing was written; others may have the row by now."""

    def __init__(self, message: str, *, row_id: int) -> None:
        super().__init__(message)
        self.row_id = row_id


def _performer_of(key: str) -> str:
    """Give the name with which a key begins; it holds neither a slash nor a hash."""
    return key.partition("/")[0].partition("#")[0]


class WaitEnded(JobsError):
    """A job that somebody waited for has come to another end than success; `job_id` says which."""

    def __init__(self, message: str, *, job_id: int) -> None:
        super().__init__(message)
        self.job_id = job_id


class WaitFailed(WaitEnded):
    """The job has failed for good; `error` is the newest entry of its `errors`, empty where there is none."""

    def __init__(self, job_id: int, error: Mapping[str, Any]) -> None:
        super().__init__(f"job {job_id} has failed{_because(error)}", job_id=job_id)
        self.error = error


class WaitCancelled(WaitEnded):
    """The job was cancelled, has expired or was superseded; `error` is the newest entry of its `errors`."""

    def __init__(self, job_id: int, error: Mapping[str, Any]) -> None:
        super().__init__(f"job {job_id} was cancelled{_because(error)}", job_id=job_id)
        self.error = error


class WaitGone(WaitEnded):
    """The row of the job is no longer there, so nobody knows what it came to."""


def _because(error: Mapping[str, Any]) -> str:
    return f": {reason}" if (reason := error.get("reason")) else ""


class VerbRefused(JobsError):
    """A verb by hand that doesn't fit the state the job is in; nothing was changed."""

    def __init__(self, message: str, *, job_id: int) -> None:
        super().__init__(message)
        self.job_id = job_id


class JobGone(VerbRefused):
    """The row is no longer there: pruned, deleted, or never committed."""


class JobWaiting(VerbRefused):
    """The job hasn't come to its end."""


class JobRunning(VerbRefused):
    """The job's body runs."""


class JobStopping(JobRunning):
    """The job was cancelled, and its body may still be running."""


class JobFinished(VerbRefused):
    """The job has come to its end already."""


class JobSucceeded(JobFinished):
    """The job has succeeded."""


class KeyHeld(VerbRefused):
    """Another job holds the job's key."""

    def __init__(self, message: str, *, job_id: int, holder_id: int) -> None:
        super().__init__(message, job_id=job_id)
        self.holder_id = holder_id


class ControlWord(Exception):
    """The root of what a performer may raise, or return, to say how the run ends."""


class Retry(ControlWord):
    """Ask for another attempt after the backoff, or after `after` (a duration); on the last attempt the job fails."""

    def __init__(self, reason: str = "", after: durations.Duration | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.after: timedelta | None = None if after is None else durations.parse(after, what="Retry(after=…)")


class Snooze(ControlWord):
    """Put the job off by `after` (a duration) without counting the attempt."""

    def __init__(self, after: durations.Duration, reason: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.after = durations.parse(after, what="Snooze(after=…)")


class Cancel(ControlWord):
    """Say that the job is no longer needed."""

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason)
        self.reason = reason


class GiveUp(ControlWord):
    """Fail the job without further attempts."""

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason)
        self.reason = reason


class Interruption(BaseException):
    """What the worker raises into a running performer. Clean up and let it pass."""


class JobTimeout(Interruption):
    """The attempt has run for longer than its timeout."""


class JobCancelled(Interruption):
    """Somebody cancelled the job while it ran."""


class JobLost(Interruption):
    """This worker may no longer hold the job, or must stop now; another one will run it."""
