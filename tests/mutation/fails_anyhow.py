"""Collected by test_mutants.py only: a test that fails without any mistake in the statements."""

from __future__ import annotations

import pytest
from django.db import connections

from django_jobs import lifecycle
from django_jobs.records import Lease

pytestmark = pytest.mark.django_db


def test_that_holds() -> None:
    pass


def test_that_fails() -> None:
    assert lifecycle.renew(connections["default"], [Lease(id=1, token=1)])
