from __future__ import annotations

from django_jobs import backoff

soon = backoff.fixed(0.1)
"""Try again almost at once."""
