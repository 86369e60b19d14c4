from __future__ import annotations

import pytest
from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper

from django_jobs.stores import store_for
from django_jobs.stores.base import Store


@pytest.fixture
def store() -> Store:
    return store_for("default")


@pytest.fixture
def connection() -> BaseDatabaseWrapper:
    return connections["default"]


@pytest.fixture
def row_locks(connection: BaseDatabaseWrapper) -> None:
    if not connection.features.has_select_for_update_skip_locked:
        pytest.skip("this database locks whole files, not rows")
