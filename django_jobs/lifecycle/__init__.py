"""Write: a job's whole life. Each verb decides, writes and tells; nothing else opens the store for writing.

`queueing` (a job comes to be), `keys` (of which one job at a time may be), `waking` (workers hear of it), `running`
(claim, renew, settle, release), `reclaiming` (what the dead held), `chores` (expire, prune), `by_hand` (what people
do to jobs), `pausing` (what they do to queues), `pushed` (rows of the low level), `hosts` (who is alive), `links` (what
loops ask of their connections), `batches` (nothing may hold a job back).

The verbs of workers and chores take the connection they run on. Those of people take an alias and run on the caller's
connection, in the caller's transaction.
"""

from __future__ import annotations

from django_jobs.lifecycle.by_hand import (
    ahead,
    cancel,
    cancel_one,
    delete,
    delete_one,
    key_holder,
    moved_and_why,
    reschedule,
    reschedule_one,
    retry,
    retry_one,
)
from django_jobs.lifecycle.chores import CHUNK, Pruned, expire, prune, prune_round, tell_of_pruned
from django_jobs.lifecycle.hosts import SWEEP_AGE, beat, sign_off, sweep, workers
from django_jobs.lifecycle.keys import TRIES
from django_jobs.lifecycle.links import (
    cancel_statement,
    dedicate,
    hang_up,
    hear,
    listen,
    needs_proof,
    notify,
    prepare_if_direct,
    pulse,
    refused,
    unlisten,
)
from django_jobs.lifecycle.pausing import pause, resume
from django_jobs.lifecycle.pushed import ack, dead, extend, push, pushed_counts, put_back, take
from django_jobs.lifecycle.queueing import enqueue, enqueue_many, prepare_follow_ups_by
from django_jobs.lifecycle.reclaiming import bury, disown, lapsed, reclaim
from django_jobs.lifecycle.running import (
    LOCKED_PAUSES,
    Run,
    begin,
    begin_life,
    came_to,
    claim,
    claim_this,
    new_token,
    next_due,
    release,
    renew,
    report,
    settle,
    settle_within,
    still_held,
    stopping,
)
from django_jobs.lifecycle.waking import SILENCE

__all__ = [
    "CHUNK", "LOCKED_PAUSES", "SILENCE", "SWEEP_AGE", "TRIES", "Pruned", "Run", "ack", "ahead", "beat", "begin",
    "begin_life", "bury", "came_to", "cancel", "cancel_one", "cancel_statement", "claim", "claim_this", "dead",
    "dedicate", "delete", "delete_one", "disown", "enqueue", "enqueue_many", "expire", "extend", "hang_up", "hear",
    "key_holder", "lapsed", "listen", "moved_and_why", "needs_proof", "new_token", "next_due", "notify", "pause",
    "prepare_follow_ups_by", "prepare_if_direct", "prune", "prune_round", "pulse", "push", "pushed_counts",
    "put_back", "reclaim", "refused", "release", "renew", "report", "reschedule", "reschedule_one", "resume", "retry",
    "retry_one", "settle", "settle_within", "sign_off", "still_held", "stopping", "sweep", "take", "tell_of_pruned",
    "unlisten", "workers",
]  # fmt: skip
