"""The example project's settings, with the measured jobs beside its own, as in production."""

from __future__ import annotations

import os

from example_project.settings import *  # noqa: F403 - what isn't said here is as there
from example_project.settings import INSTALLED_APPS as SHOP_APPS
from tests.benchmarks.notes import STATEMENTS_VARIABLE

DEBUG = False
INSTALLED_APPS = [*SHOP_APPS, "tests.benchmarks"]
DJANGO_JOBS = {"OBSERVE": "tests.benchmarks.notes.observe"} if os.environ.get(STATEMENTS_VARIABLE) else {}
