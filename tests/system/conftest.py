from __future__ import annotations

from tests.system.fresh_app import fresh_app

__all__ = ["fresh_app"]
