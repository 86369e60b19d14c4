"""Where databases are: URLs, taken apart without Django, so that raw loops and peers can use them."""

from __future__ import annotations

from typing import Any

import environ


def parts(url: str) -> dict[str, Any]:
    """Give the entry of DATABASES that a URL means."""
    return dict(environ.Env.db_url_config(url))


def vendor(url: str) -> str:
    return "sqlite" if parts(url)["ENGINE"].endswith("sqlite3") else "postgresql"


def variables(url: str) -> dict[str, str]:
    """Give the variables by which every client of PostgreSQL finds the database."""
    said = parts(url)
    found = {"PGDATABASE": "NAME", "PGUSER": "USER", "PGPASSWORD": "PASSWORD", "PGHOST": "HOST", "PGPORT": "PORT"}
    options = {f"PG{name.upper()}": str(value) for name, value in said.get("OPTIONS", {}).items()}
    return options | {variable: str(said[part]) for variable, part in found.items() if said.get(part)}


def conninfo(url: str) -> str:
    """Give the words by which psycopg connects."""
    from psycopg.conninfo import make_conninfo

    said = parts(url)
    words = {"dbname": "NAME", "user": "USER", "password": "PASSWORD", "host": "HOST", "port": "PORT"}
    return make_conninfo(
        "", **said.get("OPTIONS", {}), **{word: said[part] for word, part in words.items() if said[part]}
    )


def beside(url: str, name: str) -> str:
    """Give the URL of another database of the same server."""
    address, mark, options = url.partition("?")
    return f"{address.rpartition('/')[0]}/{name}{mark}{options}"
