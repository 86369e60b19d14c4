from __future__ import annotations

from tests.lifecycle.conftest import heard

__all__ = ["heard"]
