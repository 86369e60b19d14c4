"""Write: the statements of the store, once for both databases. Text only; base runs it, a dialect fills it in.

What differs between databases stands in braces: `{now}`, `{never}` (an instant before all others), `{later:seconds}`
and `{ago:seconds}` (that long after and before now), `{rows:name}` (a table made from one JSON parameter), `{by:x}`
(the job of that id, looked up), `{at:column; x}` (the row that has this in an indexed column), `{holder:column; x;
condition}` (joins the one job with this key for which the condition holds, by the index of such keys) and
`{using:table}` (as `{by}` in a delete, for each row), `{few:number}` (always true, and rare for a planner),
`{append:entry}` (the row's errors with one more), `{last_reason}` (of the latest of them), `{wait}`, `{share}` and
`{skip}` (how rows are locked; `{wait_to_delete}` and `{skip_to_delete}` keep off new references to them, too),
`{impatient}` (waits for nobody for long), `{returning:columns}`, `{bytewise:x}` (a text that sorts as Python sorts it),
`{json:x}`, `{instant:x}`, `{boolean:x}`, `{float:x}`, `{seconds_until:x}`.

Each write names what it expects of a row, and the rows that come back are the answer. Rows in somebody else's hands are
skipped by the verbs of workers. Those of people wait for them, and lock theirs in the order of their ids.
"""

from __future__ import annotations

ROWS: dict[str, dict[str, str]] = {
    "ids": {"id": "bigint"},
    "leases": {"id": "bigint", "token": "bigint"},
    "successes": {"id": "bigint", "token": "bigint", "result": "text"},
    "reports": {"id": "bigint", "token": "bigint", "progress": "text"},
    "changes": {
        "id": "bigint", "token": "bigint", "state": "text", "attempts": "int", "max_attempts": "int", "crashes": "int",
        "alone": "boolean", "delay": "float8", "entry": "text", "fingerprint": "text",
    },
    "forwards": {"id": "bigint", "delay": "float8"},
    "superseded": {
        "id": "bigint", "token": "bigint", "rival": "bigint", "delay": "float8", "attempts": "int",
        "max_attempts": "int", "crashes": "int", "entry": "text",
    },
    "keys": {"key": "text"},
    "replacements": {
        "key": "text", "args": "text", "kwargs": "text", "run_at": "text", "delay": "float8", "expires": "float8",
    },
    "queues": {"queue": "text", "room": "int"},
    "names": {"name": "text"},
    "workers": {
        "identity": "text", "host": "text", "pid": "int", "queues": "text", "slots": "int", "versions": "text",
        "age": "float8", "claim_age": "float8",
    },
    "jobs": {
        "id": "bigint", "name": "text", "queue": "text", "priority": "int", "args": "text", "kwargs": "text",
        "run_at": "text", "delay": "float8", "expires": "float8", "max_attempts": "int", "max_crashes": "int",
        "restart": "boolean", "timeout": "float8", "keep": "float8", "keep_failed": "float8", "meta": "text",
        "on_failure": "text", "unique_key": "text", "unique_for": "float8", "waiting_key": "text",
    },
}  # fmt: skip
"""The JSON parameters that statements read as tables, with their columns."""
ROWS["fired"] = ROWS["jobs"] | {"schedule": "text", "tick": "text"}

INSTANTS = frozenset(
    {"enqueued_at", "run_at", "expires_at", "first_started_at", "started_at", "lease_expires_at", "tick"}
)
"""The instants among the columns that statements return."""

# The server plans it anew each time, on a connection of the caller's; so it says no more than it has to.
_INSERT = """
insert into {job} as job (
  name, queue, priority, args, kwargs, max_attempts, max_crashes, restart, timeout, keep, keep_failed, meta, on_failure,
  enqueued_at, COLUMNS)
values (
  %(name)s, %(queue)s, %(priority)s, {json:%(args)s}, {json:%(kwargs)s}, %(max_attempts)s, %(max_crashes)s,
  {boolean:%(restart)s}, {float:%(timeout)s}, {float:%(keep)s}, {float:%(keep_failed)s}, {json:%(meta)s},
  %(on_failure)s, {now}, INSTANTS)
CONFLICT{returning:id, enqueued_at, run_at, expires_at}
"""

INSERT = _INSERT.replace("COLUMNS", "run_at").replace("INSTANTS", "{now}").replace("CONFLICT", "")

_LATER = """coalesce({instant:%(run_at)s}, {later:%(delay)s}),
  {after:coalesce({instant:%(run_at)s}, {later:%(delay)s}); %(expires)s}"""

# A job that waits for its time, or that may come too late.
INSERT_LATER = _INSERT.replace("COLUMNS", "run_at, expires_at").replace("INSTANTS", _LATER).replace("CONFLICT", "")

# Nothing comes back where another job holds the key; it waits for whoever is about to queue or to end that one.
INSERT_KEYED = (
    _INSERT.replace("COLUMNS", "run_at, expires_at, unique_key, unique_until, waiting_key")
    .replace("INSTANTS", f"{_LATER},\n  %(unique_key)s, {{later:{{float:%(unique_for)s}}}}, %(waiting_key)s")
    .replace("CONFLICT", "on conflict do nothing ")
)

_INSERT_MANY = """
insert into {job} as job (
  id, name, queue, priority, args, kwargs, run_at, expires_at, max_attempts, max_crashes, restart, timeout, keep,
  keep_failed, meta, on_failure, enqueued_atMORE)
select c.id, c.name, c.queue, c.priority, {json:c.args}, {json:c.kwargs},
  coalesce({instant:c.run_at}, {later:c.delay}), {after:coalesce({instant:c.run_at}, {later:c.delay}); c.expires},
  c.max_attempts, c.max_crashes, c.restart, c.timeout, c.keep, c.keep_failed, {json:c.meta}, c.on_failure, {now}VALUES
from {rows:jobs} where true order by ORDER
"""

INSERT_MANY = _INSERT_MANY.replace("MORE", "").replace("VALUES", "").replace("ORDER", "c.id")

# In the order of their keys, which is the same from one part of a call to the next, whatever the database's collation:
# so two that insert the same ones wait for each other in one direction only.
INSERT_MANY_KEYED = (
    _INSERT_MANY.replace("MORE", ", unique_key, unique_until, waiting_key")
    .replace("VALUES", ",\n  c.unique_key, {later:c.unique_for}, c.waiting_key")
    .replace("ORDER", "{bytewise:coalesce(c.unique_key, c.waiting_key)}")
    + "on conflict do nothing {returning:id, enqueued_at, run_at, expires_at, unique_key, waiting_key}"
)

# The jobs of ticks, by the way of those with a key, which some of them have.
INSERT_FIRED = (
    _INSERT_MANY.replace("MORE", ", unique_key, unique_until, waiting_key, schedule, tick")
    .replace("VALUES", ",\n  c.unique_key, {later:c.unique_for}, c.waiting_key, c.schedule, {instant:c.tick}")
    .replace("ORDER", "c.id")
    .replace("{rows:jobs}", "{rows:fired}")
    + "on conflict do nothing {returning:id, tick}"
)

# -- who holds a key

_IS_HELD = "(job.state in ('READY', 'RUNNING') or job.worker is not null or job.unique_until is not null)"

_IS_OVER = """job.unique_until <= {now} and job.worker is null
    and job.state in ('SUCCESSFUL', 'FAILED', 'CANCELLED')"""

# Rows are found by the index of keys first, and put into the order of their ids, in which they are locked, afterwards:
# PostgreSQL might find it best to read the whole table in that order. SQLite takes an index of some rows only where the
# statement says in the same words of which.

# A key that was to be held for a while after its job's end is free again.
FREE = f"""
with found as materialized (
  select job.id from {{rows:keys}} {{holder:unique_key; c.key; {_IS_HELD} and {_IS_OVER}}}
),
todo as materialized (
  select job.id from found join {{job}} as job on {{by:found.id}} where {_IS_OVER} order by found.id {{wait}}
)
update {{job}} as job set unique_until = null from todo where {{by:todo.id}} {{returning:id}}
"""

_FIND = """
select job.id, {utc:job.enqueued_at}, {utc:job.run_at}, {utc:job.expires_at}, job.KEY
from {rows:keys} {holder:KEY; c.key; WHICH}
"""

FIND_UNIQUE = _FIND.replace("WHICH", _IS_HELD).replace("KEY", "unique_key")
FIND_BUSY = _FIND.replace("WHICH", f"{_IS_HELD} and job.state <> 'READY'").replace("KEY", "unique_key")
FIND_WAITING = _FIND.replace("WHICH", "job.state = 'READY'").replace("KEY", "waiting_key")

_WAITS = "job.state = 'READY'"
_MAY_RUN = f"{_WAITS} and (job.expires_at is null or job.expires_at > {{now}})"

# Who waits is locked against being claimed before the caller's transaction has ended; many may do so at once. One that
# has expired will never run, so it is of no use to the caller.
_LOCK = f"""
with found as materialized (
  select job.id from {{rows:keys}} {{holder:KEY; c.key; {_MAY_RUN}HELD}}
)
select job.id, {{utc:job.enqueued_at}}, {{utc:job.run_at}}, {{utc:job.expires_at}}, job.KEY
from found join {{job}} as job on {{by:found.id}} where {_MAY_RUN} order by found.id {{share}}
"""

LOCK_UNIQUE = _LOCK.replace("KEY", "unique_key").replace("HELD", f" and {_IS_HELD}")
LOCK_WAITING = _LOCK.replace("KEY", "waiting_key").replace("HELD", "")

_REPLACE = """
with found as materialized (
  select job.id, c.args, c.kwargs, coalesce({instant:c.run_at}, {later:c.delay}) as run_at, c.expires
  from {rows:replacements} {holder:KEY; c.key; MAY_RUNHELD}
),
todo as materialized (
  select found.* from found join {job} as job on {by:found.id} where MAY_RUN order by found.id {wait}
)
update {job} as job set args = {json:todo.args}, kwargs = {json:todo.kwargs}, run_at = todo.run_at,
  expires_at = {after:todo.run_at; todo.expires}
from todo where {by:todo.id}
{returning:id, enqueued_at, run_at, expires_at, KEY}
""".replace("MAY_RUN", _MAY_RUN)

REPLACE_UNIQUE = _REPLACE.replace("KEY", "unique_key").replace("HELD", f" and {_IS_HELD}")
REPLACE_WAITING = _REPLACE.replace("KEY", "waiting_key").replace("HELD", "")

# The queues that have READY rows, found by one probe each, whatever else the table holds.
#
# The walk ends where a probe finds nothing. That is said by comparing (names aren't empty, priorities begin at -100),
# not by IS NOT NULL: PostgreSQL believes that a comparison leaves a third of the rows, and IS NOT NULL all of them, and
# would think these statements dear enough to compile them first, which takes a hundred times as long as running them.
EVERY_QUEUE = """
every_queue(queue) as (
  select (select ready.queue from {job} as ready where ready.state = 'READY' and ready.name > ''
          order by ready.queue limit 1)
  union all
  select (select ready.queue from {job} as ready
          where ready.state = 'READY' and ready.name > '' and ready.queue > every_queue.queue
          order by ready.queue limit 1)
  from every_queue where every_queue.queue > ''
),
served(queue, room) as (
  select every_queue.queue, (select c.room from {rows:queues} where c.queue = every_queue.queue)
  from every_queue where every_queue.queue > ''
)
"""

NAMED_QUEUES = """
served(queue, room) as (select c.queue, c.room from {rows:queues} where c.queue > '')
"""

# What a claim may ask of due rows beside that.
NOT_ALONE = """
      and not ready.alone"""

# The `case` keeps PostgreSQL from making a join of it, for which it might read all rows of a pair.
SOME_NAMES = """
      and case when ready.name in (select c.name from {rows:names}) then true else false end"""

# The claim walks the (queue, priority) pairs that exist, highest priority first, and takes the oldest due rows of each:
# finished rows are not in the index, and future ones of a higher priority cost one probe a pair.
WALK = """
with recursive
{served},
pair(queue, room, priority) as (
  select served.queue, served.room, (
    select ready.priority from {job} as ready
    where ready.state = 'READY' and ready.name > '' and ready.queue = served.queue
    order by ready.priority desc limit 1)
  from served
  union all
  select pair.queue, pair.room, (
    select ready.priority from {job} as ready
    where ready.state = 'READY' and ready.name > '' and ready.queue = pair.queue and ready.priority < pair.priority
    order by ready.priority desc limit 1)
  from pair where pair.priority >= -100
),
open as materialized (
  select pair.queue, pair.room, pair.priority, case when pair.queue > %(last_queue)s then 0 else 1 end as turn
  from pair
  where pair.priority >= -100 and not exists (
    select 1 from {queue} as paused where paused.name = pair.queue and paused.paused_at is not null)
  order by pair.priority desc, turn, pair.queue
)
"""

# What a claim is made of.
_CLAIMED = """{returning:id, state, name, queue, priority, args, kwargs, meta, attempts, max_attempts, crashes,
  max_crashes, alone, restart, timeout, keep, schedule, waiting_key, on_failure, enqueued_at, run_at, first_started_at,
  started_at, tick}
"""

# What is taken is looked up by its ids, however small PostgreSQL believes the table to be: it may have made its plan
# when there was nothing in it, or have counted its rows when there were none. Hence `{by}`, `{few}`, and a `case`
# around what leaves hardly a row, as it believes.
CLAIM = (
    WALK
    + """,
picked as materialized ({picked}),
counted as (
  select picked.*, row_number() over (
    partition by picked.queue order by picked.priority desc, picked.run_at, picked.id) as nth
  from picked
),
placed as (
  select counted.id, counted.alone, counted.expired, row_number() over (
    order by counted.priority desc, counted.turn, counted.queue, counted.run_at, counted.id) as place
  from counted where counted.room is null or counted.nth <= counted.room
),
taken as materialized (
  select placed.id, placed.expired from placed
  where placed.place = 1
    or placed.place < coalesce((select min(suspect.place) from placed as suspect where suspect.alone), 2147483647)
  order by placed.place limit %(limit)s
)
update {job} as job set
  state = case when taken.expired then 'CANCELLED' else 'RUNNING' end,
  token = case when taken.expired then job.token else %(token)s end,
  worker = case when taken.expired then null else %(worker)s end,
  last_worker = case when taken.expired then job.last_worker else %(worker)s end,
  attempts = job.attempts + case when taken.expired then 0 else 1 end,
  first_started_at = case when taken.expired then job.first_started_at else coalesce(job.first_started_at, {now}) end,
  started_at = case when taken.expired then job.started_at else {now} end,
  lease_expires_at = case when taken.expired then null else {later:%(lease)s} end,
  deadline_at = case when taken.expired then null else {later:job.timeout + {float:%(grace)s} + {float:%(lease)s}} end,
  finished_at = case when taken.expired then {now} end,
  prune_at = case when taken.expired then {later:job.keep_failed} end,
  errors = case when taken.expired then {append:%(expiry)s} else job.errors end
from taken where {by:taken.id} and {few:taken.id} and case when job.state = 'READY' then true else false end
"""
    + _CLAIMED
)

# What a caller has just queued and runs itself is taken whatever its time, order and queue.
CLAIM_THIS = (
    """
update {job} as job set
  state = 'RUNNING', token = %(token)s, worker = %(worker)s, last_worker = %(worker)s, attempts = job.attempts + 1,
  first_started_at = coalesce(job.first_started_at, {now}), started_at = {now},
  lease_expires_at = {later:%(lease)s},
  deadline_at = {later:job.timeout + {float:%(grace)s} + {float:%(lease)s}}
where job.id = %(id)s and job.state = 'READY'
"""
    + _CLAIMED
)

# Whether a job of these queues is due, and in how many seconds the first of the others will be. Both are asked of each
# pair, since a due row that can't be claimed just now must not hide the moment of the next. (By EXISTS the planner
# would read the table until it meets a row.)
NEXT_DUE = (
    WALK
    + """
select
  max(case when (select ready.id from {job} as ready
    where ready.state = 'READY' and ready.name > '' and ready.queue = open.queue and ready.priority = open.priority
      and ready.run_at <= {now}{extra}
    order by ready.run_at, ready.id limit 1) is not null then 1 else 0 end),
  min({seconds_until:(select ready.run_at from {job} as ready
    where ready.state = 'READY' and ready.name > '' and ready.queue = open.queue and ready.priority = open.priority
      and ready.run_at > {now}{extra}
    order by ready.run_at, ready.id limit 1)})
from open where open.room is null or open.room > 0
"""
)

# How many jobs of its queue a claim would take before one that is due, by a walk as above; of each priority to a bound.
AHEAD = """
with recursive pair(priority) as (
  select (select ready.priority from {job} as ready
          where ready.state = 'READY' and ready.name > '' and ready.queue = %(queue)s
          order by ready.priority desc limit 1)
  union all
  select (select ready.priority from {job} as ready
          where ready.state = 'READY' and ready.name > '' and ready.queue = %(queue)s and ready.priority < pair.priority
          order by ready.priority desc limit 1)
  from pair where pair.priority > %(priority)s
)
select coalesce(sum((
  select count(*) from (
    select ready.id from {job} as ready
    where ready.state = 'READY' and ready.name > '' and ready.queue = %(queue)s and ready.priority = pair.priority
      and (ready.run_at, ready.id) < (case when pair.priority > %(priority)s then {now} else {instant:%(run_at)s} end,
        case when pair.priority > %(priority)s then 9223372036854775807 else %(id)s end)
    order by ready.run_at, ready.id limit %(limit)s) as before)), 0)
from pair where pair.priority >= %(priority)s
"""

RENEW = """
with todo as materialized (
  select job.id from {rows:leases} join {job} as job on {by:c.id}
  where job.token = c.token and job.worker is not null order by c.id {skip}
)
update {job} as job set lease_expires_at = {later:%(lease)s} from todo where {by:todo.id}
{returning:id, token, state}
"""

# Held rows have more than those that run: a body that was cancelled may still say how far it is.
REPORT = """
with todo as materialized (
  select job.id, c.progress from {rows:reports} join {job} as job on {by:c.id}
  where job.token = c.token and job.worker is not null order by c.id {skip}
)
update {job} as job set progress = {json:todo.progress} from todo where {by:todo.id}
{returning:id, token}
"""

SUCCEED = """
with todo as materialized (
  select job.id, c.result from {rows:successes} join {job} as job on {by:c.id}
  where job.token = c.token and job.state = 'RUNNING' order by c.id {skip}
)
update {job} as job set state = 'SUCCESSFUL', finished_at = {now}, prune_at = {later:job.keep},
  result = {json:todo.result}, worker = null, lease_expires_at = null, deadline_at = null
from todo where {by:todo.id}
{returning:id, token}
"""

SUCCEED_AND_GO = """
with todo as materialized (
  select job.id from {rows:leases} join {job} as job on {by:c.id}
  where job.token = c.token and job.state = 'RUNNING' order by c.id {skip_to_delete}
)
delete from {job} as job {using:todo} {returning:id, token}
"""

# What waits again may meet in the index of keys the row of a caller that hasn't committed, and may not for hours.
_CHANGE = """
with todo as materialized (
  select c.*{impatient} from {rows:changes} join {job} as job on {by:c.id}
  where job.token = c.token and job.state = 'RUNNING'GUARD order by c.id {skip}
)
update {job} as job set
  state = todo.state, attempts = todo.attempts, max_attempts = todo.max_attempts, crashes = todo.crashes,
  alone = todo.alone,
  run_at = case when todo.delay is null then job.run_at else {later:todo.delay} end,
  finished_at = case when todo.state = 'READY' then null else {now} end,
  prune_at = case when todo.state = 'READY' then null else {later:job.keep_failed} end,
  errors = case when todo.entry is null then job.errors else {append:todo.entry} end,
  fingerprint = case when todo.entry is null then job.fingerprint else todo.fingerprint end,
  worker = null, lease_expires_at = null, deadline_at = null
from todo where {by:todo.id}
{returning:id, token}
"""

# A broken supervisor may renew a run for ever; its deadline is the last resort.
_LAPSED = "(job.lease_expires_at <= {now} or job.deadline_at <= {now})"

CHANGE = _CHANGE.replace("GUARD", "")
CHANGE_LAPSED = _CHANGE.replace("GUARD", f"\n    and job.worker is not null and {_LAPSED}")

# What would wait again though another with its key waits: that one isn't claimed meanwhile, nor cancelled, and doesn't
# run later than this one would have. (Somebody may have locked it when it was to be brought forward.)
_SUPERSEDE = """
with todo as materialized (
  select c.* from {rows:superseded} join {job} as job on {by:c.id} join {job} as rival on {at:rival.id; c.rival}
  where job.token = c.token and job.state = 'RUNNING' and rival.state = 'READY'
    and rival.run_at <= {later:c.delay}GUARD order by c.id {skip:job, rival}
)
update {job} as job set
  state = 'CANCELLED', attempts = todo.attempts, max_attempts = todo.max_attempts, crashes = todo.crashes,
  finished_at = {now}, prune_at = {later:job.keep_failed}, errors = {append:todo.entry},
  worker = null, lease_expires_at = null, deadline_at = null
from todo where {by:todo.id}
{returning:id, token}
"""

SUPERSEDE = _SUPERSEDE.replace("GUARD", "")
SUPERSEDE_LAPSED = _SUPERSEDE.replace("GUARD", f"\n    and job.worker is not null and {_LAPSED}")

FORWARD = """
with todo as materialized (
  select c.* from {rows:forwards} join {job} as job on {by:c.id}
  where job.state = 'READY' and job.run_at > {later:c.delay} order by c.id {skip}
)
update {job} as job set run_at = {later:todo.delay} from todo where {by:todo.id} {returning:id}
"""

_LET_GO = """
with todo as materialized (
  select job.id from {rows:leases} join {job} as job on {by:c.id}
  where job.token = c.token and job.state = 'CANCELLED' and job.worker is not nullGUARD order by c.id {skip}
)
update {job} as job set worker = null, lease_expires_at = null, deadline_at = null from todo where {by:todo.id}
{returning:id, token}
"""

LET_GO = _LET_GO.replace("GUARD", "")
LET_GO_LAPSED = _LET_GO.replace("GUARD", f" and {_LAPSED}")

HELD_COLUMNS = """
job.id, job.token, job.state, job.worker, job.name, job.queue, job.attempts, job.max_attempts, job.crashes,
job.max_crashes, job.alone, job.restart, job.waiting_key, job.on_failure
"""

HELD_BY = f"""
select {HELD_COLUMNS} from {{job}} as job where job.worker = %(worker)s order by job.id
"""

# The chores walk the index of what they are about, in its order, until they have enough. That has to look best to
# PostgreSQL whatever its statistics say. Where it has none, it believes that `is null` or an equality leaves hardly a
# row, and would rather read the whole table; so what the index doesn't know stands in a `case`, of which it believes
# that it leaves half. And where it believes that next to nothing is found, a bound on both sides, and an order by the
# indexed column alone, keep it from reading all of it in order to sort it.

# A row that somebody locks is passed over: its keeper couldn't renew it, and does so as soon as it is free.
LAPSED = f"""
select {HELD_COLUMNS} from {{job}} as job
where job.worker is not null and case when {_LAPSED} and job.name > '' then true else false end
order by job.worker, job.id limit %(limit)s {{skip}}
"""

PEEK = f"""
select {HELD_COLUMNS} from {{rows:ids}} join {{job}} as job on {{by:c.id}} where job.token is not null
"""

STATES = """
select job.id, job.state, case when job.worker is null then 0 else 1 end
from {rows:ids} join {job} as job on {by:c.id}
"""

QUEUES = """
select distinct job.queue from {rows:ids} join {job} as job on {by:c.id}
"""

_EXPIRE = """
with TODO
update {job} as job set state = 'CANCELLED', finished_at = {now}, prune_at = {later:job.keep_failed},
  errors = {append:%(expiry)s}
from todo where {by:todo.id}
{returning:id}
"""

EXPIRE = _EXPIRE.replace(
    "TODO",
    """todo as materialized (
  select job.id from {job} as job
  where job.state = 'READY' and job.expires_at > {never} and job.expires_at <= {now}
  order by job.expires_at limit %(limit)s {skip}
)""",
)

# Whoever asks for their keys waits for them. In a `case`, so that no index of dates looks better than that of keys.
_EXPIRE_HOLDERS = _EXPIRE.replace(
    "TODO",
    f"""found as materialized (
  select job.id from {{rows:keys}}
    {{holder:KEY; c.key; {_WAITS} and case when job.expires_at <= {{now}} then true else false endHELD}}
),
todo as materialized (
  select job.id from found join {{job}} as job on {{by:found.id}}
  where {_WAITS} and job.expires_at <= {{now}} order by found.id {{wait}}
)""",
)
EXPIRE_UNIQUE = _EXPIRE_HOLDERS.replace("KEY", "unique_key").replace("HELD", f" and {_IS_HELD}")
EXPIRE_WAITING = _EXPIRE_HOLDERS.replace("KEY", "waiting_key").replace("HELD", "")

CANCEL = """
with todo as materialized (
  select job.id from {rows:ids} join {job} as job on {by:c.id}
  where job.state in ('READY', 'RUNNING') order by c.id {wait}
)
update {job} as job set state = 'CANCELLED', finished_at = {now}, prune_at = {later:job.keep_failed},
  errors = {append:%(entry)s}
from todo where {by:todo.id}
{returning:id}
"""

# Of several with one key the oldest is moved. That another holds the key is asked of each by itself: PostgreSQL would
# make a join of it, for which it might read all keys that there are.
RETRY = """
with oldest as materialized (
  select min(job.id) as id from {rows:ids} join {job} as job on {by:c.id}
  where job.state in ('FAILED', 'CANCELLED') and job.worker is null
  group by job.unique_key, job.waiting_key
),
todo as materialized (
  select job.id from {rows:ids} join {job} as job on {by:c.id}
  where job.state in ('READY', 'FAILED', 'CANCELLED') and job.worker is null
    and case when job.unique_key is not null and exists (select 1 from {job} as other
      where other.id <> job.id and other.unique_key = job.unique_key
        and (other.state in ('READY', 'RUNNING') or other.worker is not null or other.unique_until is not null))
      then false else true end
    and case when job.waiting_key is not null and exists (select 1 from {job} as other
      where other.id <> job.id and other.waiting_key = job.waiting_key and other.state = 'READY')
      then false else true end
    and (job.state = 'READY' or (job.unique_key is null and job.waiting_key is null)
      or job.id in (select oldest.id from oldest))
  order by c.id {wait}
)
update {job} as job set state = 'READY', run_at = {now}, finished_at = null, prune_at = null, expires_at = null,
  crashes = 0, alone = {boolean:0}, first_started_at = null,
  max_attempts = case when job.max_attempts > job.attempts then job.max_attempts else job.attempts + 1 end
from todo where {by:todo.id}
{returning:id}
"""

# A job that has been claimed and waits again counts its attempts on.
RESCHEDULE = """
with todo as materialized (
  select job.id from {rows:ids} join {job} as job on {by:c.id} where job.state = 'READY' order by c.id {wait}
)
update {job} as job set queue = coalesce(%(queue)s, job.queue), priority = coalesce(%(priority)s, job.priority),
  run_at = coalesce({instant:%(run_at)s}, job.run_at), max_attempts = coalesce(%(max_attempts)s, job.max_attempts)
from todo where {by:todo.id}
{returning:id}
"""

KEYS = """
select job.unique_key, job.waiting_key from {rows:ids} join {job} as job on {by:c.id}
"""

# By the index of keys alone, whichever kind a job has.
KEY_HOLDER = f"""
select job.id from {{job}} as wanted {{holder:unique_key; wanted.unique_key; {_IS_HELD} and job.id <> wanted.id}}
where wanted.id = %(id)s
union all
select job.id from {{job}} as wanted
{{holder:waiting_key; wanted.waiting_key; job.state = 'READY' and job.id <> wanted.id}}
where wanted.id = %(id)s
limit 1
"""

DELETE = """
with todo as materialized (
  select job.id from {rows:ids} join {job} as job on {by:c.id}
  where job.worker is null order by c.id {wait_to_delete}
)
delete from {job} as job {using:todo} {returning:id}
"""

# Gives whether it was paused by this: who pauses it again says anew who and why, and since when stays.
PAUSE = """
insert into {queue} as queue (name, paused_at, paused_by, reason) values (%(queue)s, {now}, %(by)s, %(reason)s)
on conflict (name) do update set paused_at = coalesce(queue.paused_at, excluded.paused_at),
  paused_by = excluded.paused_by, reason = excluded.reason
returning case when paused_at = {now} then 1 else 0 end
"""

RESUME = """
update {queue} as queue set paused_at = null, paused_by = '', reason = ''
where queue.name = %(queue)s and queue.paused_at is not null
returning name
"""

# One statement for all workers of a supervisor, however long they live: a row that went missing comes back.
BEAT = """
insert into {worker} as worker (identity, host, pid, queues, slots, versions, started_at, claimed_at, beat_at)
select c.identity, c.host, c.pid, {json:c.queues}, c.slots, {json:c.versions}, {ago:c.age}, {ago:c.claim_age}, {now}
from {rows:workers} where true order by c.identity
on conflict (identity) do update set claimed_at = excluded.claimed_at, beat_at = excluded.beat_at
"""

SIGN_OFF = """
delete from {worker} where identity in (select c.name from {rows:names}) returning identity
"""

SWEEP = """
with todo as materialized (
  select worker.identity from {worker} as worker where {after:worker.beat_at; %(age)s} <= {now}
  order by worker.identity {skip:worker}
)
delete from {worker} where identity in (select todo.identity from todo) returning identity
"""

WORKERS = """
select worker.identity, worker.host, worker.pid, worker.queues, worker.slots,
  -{seconds_until:worker.started_at}, -{seconds_until:worker.beat_at}, -{seconds_until:worker.claimed_at},
  (select count(*) from {job} as job where job.worker = worker.identity)
from {worker} as worker order by worker.identity
"""

_MAY_GO = """job.worker is null and job.state in ('SUCCESSFUL', 'FAILED', 'CANCELLED')
  and (job.unique_until is null or job.unique_until <= {now})"""

_PRUNE = """
with todo as materialized (
  select job.id from {job} as job where ONLY {skip_to_delete}
)
delete from {job} as job {using:todo} {returning:id}
"""

PRUNE = _PRUNE.replace(
    "ONLY",
    f"""job.prune_at <= {{now}} and case when {_MAY_GO} then true else false end
  order by job.prune_at limit %(limit)s""",
)

# These two go by id alone; an index of dates that look few would be read for each of them.
_BY_ID = f"case when job.prune_at <= {{now}} and {_MAY_GO} then true else false end"

PRUNE_ONE = _PRUNE.replace("ONLY", f"job.id = %(only)s and {_BY_ID}")

PRUNABLE_AFTER = f"""
select job.id from {{job}} as job where job.id > %(after)s and {_BY_ID} order by job.id limit %(limit)s
"""

PULSE = "select {utc:{server_start}}, {utc:{now}}"

WHOLE = (
    "INSERT", "INSERT_LATER", "INSERT_KEYED", "INSERT_MANY", "INSERT_MANY_KEYED", "FREE", "LOCK_UNIQUE",
    "LOCK_WAITING", "FIND_UNIQUE", "FIND_BUSY", "FIND_WAITING", "REPLACE_UNIQUE", "REPLACE_WAITING", "SUPERSEDE",
    "SUPERSEDE_LAPSED", "FORWARD", "RENEW", "SUCCEED", "SUCCEED_AND_GO", "CHANGE", "CHANGE_LAPSED", "LET_GO",
    "LET_GO_LAPSED", "HELD_BY", "LAPSED", "PEEK", "STATES", "QUEUES", "EXPIRE", "CANCEL", "RETRY", "RESCHEDULE",
    "KEY_HOLDER", "DELETE", "PRUNABLE_AFTER", "PRUNE", "PRUNE_ONE", "PULSE", "CLAIM_THIS", "BEAT", "SIGN_OFF",
    "SWEEP", "WORKERS", "EXPIRE_UNIQUE", "EXPIRE_WAITING", "KEYS", "PAUSE", "RESUME", "AHEAD", "REPORT",
    "INSERT_FIRED",
)  # fmt: skip
"""The names of those above that are run as they are; CLAIM and NEXT_DUE are composed."""
