"""What a database says of how it runs our statements: by which indexes, with how much work, at what cost."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

from django.db.backends.base.base import BaseDatabaseWrapper

from django_jobs.models import Job

TABLE = Job._meta.db_table

COMPILED_ABOVE = 100_000.0
"""What PostgreSQL believes to cost more it compiles first (`jit_above_cost`), for tens of milliseconds or more."""

Statement: TypeAlias = tuple[str, Mapping[str, Any]]
"""A statement of ours as it goes to the driver, with its values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How a statement was run. `work` is in pages of PostgreSQL, or in thousands of steps of SQLite's machine.

    `indexes` are those used on any table, "id" standing for the primary key of jobs; `scans` are whole readings of the
    table of jobs; `sorts` is whether SQLite sorts what it reads.
    """

    lines: tuple[str, ...]
    indexes: frozenset[str]
    scans: tuple[str, ...]
    work: int
    cost: float = 0.0
    sorts: bool = False


@contextmanager
def undone(connection: BaseDatabaseWrapper) -> Iterator[None]:
    """Take back what is done within, in a transaction that is open."""
    mark = connection.savepoint() or ""
    try:
        yield
    finally:
        connection.savepoint_rollback(mark)
        connection.savepoint_commit(mark)


def statements_of(connection: BaseDatabaseWrapper, call: Callable[[], Any]) -> list[Statement]:
    """Have a call run its statements, take back what they did, and give them."""
    found: list[Statement] = []

    def listen(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        found.append((sql, params))
        return execute(sql, params, many, context)

    with undone(connection), connection.execute_wrapper(listen):
        call()
    assert found
    return found


def plan_of(connection: BaseDatabaseWrapper, statement: Statement) -> Plan:
    """Run a statement, take back what it did, and say how it was run."""
    with undone(connection):
        return done(connection, statement)


def done(connection: BaseDatabaseWrapper, statement: Statement) -> Plan:
    """Run a statement, and say how it was run."""
    run = _sqlite_plan if connection.vendor == "sqlite" else explained
    return run(connection, statement)


def generic_plan_of(connection: BaseDatabaseWrapper, statement: Statement) -> Plan:
    """Do the same with a plan of PostgreSQL's made without a look at the values, as prepared statements get them."""
    with undone(connection):
        return explained(connection, prepared(connection, "ours", statement))


def _sqlite_plan(connection: BaseDatabaseWrapper, statement: Statement) -> Plan:
    sql, values = statement
    steps = 0

    def count() -> None:
        nonlocal steps
        steps += 1

    with connection.cursor() as cursor:
        cursor.execute(f"explain query plan {sql}", values)
        lines = tuple(str(row[-1]) for row in cursor.fetchall())
        connection.connection.set_progress_handler(count, 1_000)
        try:
            cursor.execute(sql, values)
            cursor.fetchall()
        finally:
            connection.connection.set_progress_handler(None, 0)
    names = re.findall(r"USING (?:COVERING )?(INTEGER PRIMARY KEY|INDEX \w+)", "\n".join(lines))
    return Plan(
        lines=lines,
        indexes=frozenset("id" if name.startswith("INTEGER") else name.removeprefix("INDEX ") for name in names),
        scans=tuple(line for line in lines if re.fullmatch(rf"SCAN (job|ready|{TABLE})", line)),
        work=steps,
        sorts=any("TEMP B-TREE" in line for line in lines),
    )


def explained(connection: BaseDatabaseWrapper, statement: Statement) -> Plan:
    """Have PostgreSQL run a statement and say how it did."""
    sql, values = statement
    with connection.cursor() as cursor:
        cursor.execute(f"explain (analyze, buffers, format json) {sql}", values)
        [(found,)] = cursor.fetchall()
    [whole] = json.loads(found) if isinstance(found, str) else found
    top = whole["Plan"]
    nodes = list(_nodes(top))
    indexes = {node["Index Name"] for node in nodes if "Index Name" in node}
    scans = (node for node in nodes if node["Node Type"].endswith("Seq Scan") and node["Relation Name"] == TABLE)
    return Plan(
        lines=tuple(f"{node['Node Type']} {node.get('Index Name', node.get('Relation Name', ''))}" for node in nodes),
        indexes=frozenset("id" if name == f"{TABLE}_pkey" else name for name in indexes),
        scans=tuple(node["Node Type"] for node in scans),
        work=top["Shared Hit Blocks"] + top["Shared Read Blocks"],
        cost=top["Total Cost"],
    )


def _nodes(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield node
    for child in node.get("Plans", ()):
        yield from _nodes(child)


def prepared(connection: BaseDatabaseWrapper, name: str, statement: Statement) -> Statement:
    """Have PostgreSQL prepare a statement as psycopg does for our loops, and give what executes it.

    Its plan is made when it is first executed, and is used for as long as nothing changes that PostgreSQL knows of the
    tables.
    """
    sql, values = statement
    names = list(dict.fromkeys(re.findall(r"%\((\w+)\)s", sql)))
    text = re.sub(r"%\((\w+)\)s", lambda match: f"${names.index(match[1]) + 1}", sql).replace("%%", "%")
    types = ", ".join(_type_of(values[each]) for each in names)
    with connection.cursor() as cursor:
        cursor.execute("set local plan_cache_mode = force_generic_plan")
        cursor.execute("select 1 from pg_prepared_statements where name = %s", [name])
        if cursor.fetchone():
            # What is prepared outlives the transaction.
            cursor.execute(f"deallocate {name}")
        cursor.execute(f"prepare {name}{f' ({types})' if types else ''} as {text}")
    given = ", ".join(f"%({each})s" for each in names)
    return f"execute {name}{f' ({given})' if given else ''}", values


def _type_of(value: object) -> str:
    match value:
        case float():
            return "float8"
        case bool():
            return "boolean"
        case int():
            return "int2" if abs(value) < 2**15 else "int4" if abs(value) < 2**31 else "int8"
        case _:
            return "unknown"
