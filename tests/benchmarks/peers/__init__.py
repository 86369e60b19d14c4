"""Have other queues do the same work: each is installed into an environment that is thrown away with the run.

One module a peer, all with the same words, which import what they need only when asked to do something, since only the
peer's own environment has it:

- `REQUIREMENTS`, and `PACKAGE`, whose version is told
- `WORKERS`: how many processes of `work()` make two worker processes
- `SUCCEEDED`: the query that counts jobs that succeeded, '' where the peer doesn't keep them in the database
- `prepare()` makes the tables, `Client` queues (`one`, `many`), `wipe()` forgets all jobs, `work()` is a worker
"""

from __future__ import annotations

NAMES = ("pgqueuer", "procrastinate", "dj_queue", "django_tasks_db", "celery")
