"""Write: who gets a key, who holds it, and what becomes of a job that would wait again while another with it waits.

The database decides, by two unique indexes. An insert that meets a holder writes nothing and breaks no transaction; it
waits for a twin that isn't committed yet, and for a holder that is about to end.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

from django_jobs import signals, transitions
from django_jobs.exceptions import DuplicateJob, KeyContended
from django_jobs.lifecycle.waking import after_commit
from django_jobs.records import Inserted, Key, Lease, NewJob
from django_jobs.states import State
from django_jobs.stores import store_for
from django_jobs.transitions import Change

if TYPE_CHECKING:
    from django.db.backends.base.base import BaseDatabaseWrapper

TRIES = 3
"""So often a key is tried for whose holder is gone again when it is looked for."""

MOST_EXPIRED = 1_000
"""So many jobs are expired at a time where one of them might stand for another."""


# -- queueing


def insert_keyed(connection: BaseDatabaseWrapper, jobs: Sequence[NewJob]) -> list[Inserted]:
    """Insert jobs that have keys, and give for each what stands in the table then, in their order.

    Of twins the first is inserted, and holds the key for the others. Raises DuplicateJob where a job says so, and
    KeyContended; then the caller takes back what was written.
    """
    wanted = _firsts(jobs)
    found: dict[Key, Inserted] = {}
    for _ in range(TRIES):
        found |= _inserted(connection, [job for key, job in wanted.items() if key not in found])
        found |= _held(connection, [job for key, job in wanted.items() if key not in found])
        if len(found) == len(wanted):
            return _answers(jobs, found)
    raise KeyContended(next(key.text for key in wanted if key not in found), tries=TRIES)


def _firsts(jobs: Sequence[NewJob]) -> dict[Key, NewJob]:
    """Give one job for each key: the first, or the last of the twins that are to replace it."""
    firsts: dict[Key, NewJob] = {}
    for job in jobs:
        if job.draft.on_duplicate == "replace":
            firsts[_key(job)] = job
        else:
            firsts.setdefault(_key(job), job)
    return firsts


def _answers(jobs: Sequence[NewJob], found: Mapping[Key, Inserted]) -> list[Inserted]:
    answers: list[Inserted] = []
    answered: set[Key] = set()
    for job in jobs:
        key = _key(job)
        inserted = found[key]
        if not inserted.duplicate and key not in answered:
            answers.append(inserted)
        elif job.draft.on_duplicate == "raise":
            raise DuplicateJob(key.text, holder_id=inserted.id)
        else:
            is_replaced = job.draft.on_duplicate == "replace" and (inserted.replaced or not inserted.duplicate)
            answers.append(inserted._replace(duplicate=True, replaced=is_replaced))
        answered.add(key)
    return answers


def _key(job: NewJob) -> Key:
    assert job.key is not None
    return job.key


def _inserted(connection: BaseDatabaseWrapper, jobs: Sequence[NewJob]) -> dict[Key, Inserted]:
    """Insert those whose keys nobody holds, or holds any longer."""
    if not jobs:
        return {}
    store = store_for(connection.alias)
    inserted = store.insert_keyed(connection, jobs)
    others = [job for job in jobs if job.key not in inserted]
    unique = [job.unique_key for job in others if job.unique_key is not None]
    if unique and store.free(connection, unique):
        inserted |= store.insert_keyed(connection, others)
    return inserted


def _held(connection: BaseDatabaseWrapper, jobs: Sequence[NewJob]) -> dict[Key, Inserted]:
    """Find the holders of the others' keys.

    One that waits is locked, so that it isn't claimed before the change is visible for which it was asked again; one
    that runs may have missed that change. Who waits only by the time that those who run are looked for isn't locked,
    and so isn't found: the key is tried again.
    """
    found: dict[Key, Inserted] = {}
    for waiting in (False, True):
        kind = [job for job in jobs if _key(job).is_waiting is waiting]
        held = _holders(connection, kind, waiting=waiting)
        found |= {Key(text, is_waiting=waiting): holder for text, holder in held.items()}
    return found


def _holders(connection: BaseDatabaseWrapper, jobs: Sequence[NewJob], *, waiting: bool) -> dict[str, Inserted]:
    store = store_for(connection.alias)
    found: dict[str, Inserted] = {}
    if replacing := [job for job in jobs if job.draft.on_duplicate == "replace"]:
        found |= store.replace(connection, replacing, waiting=waiting)
    if returning := [_key(job).text for job in jobs if job.draft.on_duplicate == "return"]:
        found |= store.lock_holders(connection, returning, waiting=waiting)
    others = [text for text in (_key(job).text for job in jobs) if text not in found]
    # What has expired will never run, so its key is free, though no worker has seen to it yet.
    if not others or _expired(connection, others, waiting=waiting):
        return found
    if refusing := [_key(job).text for job in jobs if job.draft.on_duplicate == "raise"]:
        found |= store.find_holders(connection, refusing, waiting=waiting)
    asked = [text for text in others if text not in {*found, *refusing}]
    if asked and not waiting:
        found |= store.find_busy(connection, asked)
    return found


# -- holders whose time is over


def clear(connection: BaseDatabaseWrapper, keys: Sequence[Key]) -> bool:
    """Free those of these keys whose holder has expired, or has ended and kept its key for as long as it was to.

    Says whether there are such.
    """
    unique, waiting = ([key.text for key in keys if key.is_waiting is kind] for kind in (False, True))
    count = _expired(connection, waiting, waiting=True) + _expired(connection, unique, waiting=False)
    if unique:
        count += store_for(connection.alias).free(connection, unique)
    return count > 0


def _expired(connection: BaseDatabaseWrapper, keys: Sequence[str], *, waiting: bool) -> int:
    """Expire those that hold these keys and wait for longer than they may, and say how many that were."""
    ids = store_for(connection.alias).expire_holders(connection, keys, waiting=waiting) if keys else set()
    return _tell_expired(connection, ids)


def _tell_expired(connection: BaseDatabaseWrapper, ids: Collection[int]) -> int:
    if ids:
        after_commit(connection, lambda: signals.tell(signals.jobs_expired, None, ids=tuple(sorted(ids))))
    return len(ids)


# -- jobs that would wait again


def superseding(connection: BaseDatabaseWrapper, changes: Sequence[Change], keys: Mapping[Lease, str]) -> list[Change]:
    """Cancel what would wait again though another with its key waits; that one is brought forward to the earlier time.

    `keys` are the waiting keys of those that have one. Of several changes with one key the first is kept. Nothing is
    written but times; who comes to wait after this is found by the index.
    """
    again = {change.lease: keys[change.lease] for change in changes if _waits(change) and change.lease in keys}
    if not again:
        return list(changes)
    store = store_for(connection.alias)
    rivals = _rivals(connection, again.values())
    kept: dict[str, Change] = {}
    forward: dict[int, timedelta | None] = {}
    decided: dict[Lease, Change] = {}
    for change in changes:
        key = again.get(change.lease)
        if key is None:
            decided[change.lease] = change
        elif (rival := rivals.get(key)) is not None:
            forward[rival] = transitions.sooner(forward[rival], change.delay) if rival in forward else change.delay
            decided[change.lease] = transitions.supersede(change, rival)
        elif (first := kept.get(key)) is not None:
            first = kept[key] = first._replace(delay=transitions.sooner(first.delay, change.delay))
            decided[first.lease] = first
            decided[change.lease] = transitions.supersede(change, first.lease.id)
        else:
            decided[change.lease] = kept[key] = change
    if forward:
        store.forward(connection, forward)
    return list(decided.values())


def _rivals(connection: BaseDatabaseWrapper, keys: Collection[str]) -> dict[str, int]:
    """Find those that wait and hold these keys, but what has expired: it will never run, and so stands for nobody."""
    store = store_for(connection.alias)
    found = store.find_holders(connection, keys, waiting=True)
    while any(rival.expires_at is not None for rival in found.values()):
        # As the chores do, passing over what is locked, since a worker waits for nobody.
        if not _tell_expired(connection, store.expire(connection, limit=MOST_EXPIRED)):
            break
        found = store.find_holders(connection, keys, waiting=True)
    return {key: rival.id for key, rival in found.items()}


def _waits(change: Change) -> bool:
    return change.state is State.READY and change.superseded_by is None
