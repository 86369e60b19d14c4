from __future__ import annotations

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.db import connections

from django_jobs.stores import store_for


def test_an_engine_we_do_not_speak_is_refused_with_the_setting_to_change(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections["default"], "vendor", "oracle")
    with pytest.raises(ImproperlyConfigured) as caught:
        store_for("default")
    assert str(caught.value) == (
        "the database 'default' is oracle; jobs need PostgreSQL or SQLite (setting DJANGO_JOBS['DATABASE'])"
    )


def test_databases_of_one_engine_share_a_store() -> None:
    assert store_for("default") is store_for("other")
