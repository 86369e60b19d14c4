from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from django.db import connections

from tests.benchmarks import report
from tests.benchmarks.__main__ import NAMES
from tests.benchmarks.notes import Notes
from tests.benchmarks.processes import ROOT

MEASUREMENTS: dict[str, set[str]] = {
    "one_by_one": {"one_by_one"},
    "many": {"many"},
    "drain": {"drain", "drain_at_work", "drain_bodies"},
    "drain_not_kept": {"drain_not_kept"},
    "drain_crowded": {"drain_crowded"},
    "drain_held": {"drain_held"},
    "pickup": {"pickup_p50", "pickup_p99", "pickup_call_p50", "pickup_call_p99"},
    "idle": {"idle_1_processor", "idle_1_statements"},
    "memory": {
        "memory_worker_resident", "memory_worker_proportional", "memory_supervisor_resident",
        "memory_supervisor_proportional",
    },
    "cost": {"cost_worker", "cost_supervisor", "cost_statements", "worker_after"},
    "scaling": {"scaling_1"},
    "claimers": {
        "claimers_1", "claimers_1_p50", "claimers_1_p99", "claimers_3", "claimers_3_p50", "claimers_3_p99",
    },
    "mixed": {"mixed_idle_longest", "mixed_idle_share"},
}  # fmt: skip
"""The figures that each gives."""

OF_POSTGRESQL = {
    "many": {"many_copy"},
    "idle": {"idle_1_transactions"},
    "cost": {"cost_transactions", "cost_queued_bytes", "cost_run_bytes"},
}

HALVES = (NAMES[:7], NAMES[7:])
"""Two runs, so that they may go on side by side."""

MAY_BE_ZERO = {
    "idle_1_processor", "idle_1_statements", "idle_1_transactions", "cost_worker", "cost_supervisor",
    "mixed_idle_longest", "mixed_idle_share",
}  # fmt: skip
"""In so short a run nothing of these may be seen; the system counts CPU time in hundredths of a second."""

WITHOUT_RAW = {
    "pickup_call_p50", "pickup_call_p99", "cost_supervisor", "worker_after", "cost_queued_bytes",
}  # fmt: skip
BESIDE_RAW = ("one_by_one", "many", "drain", "pickup", "cost", "scaling")


# Ten commands are started for each half, which is dear.
@pytest.mark.soak
@pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="reads what Linux says of processes")
@pytest.mark.parametrize("names", HALVES, ids=("first", "second"))
def test_each_measurement_gives_its_figures_from_runs_in_which_each_job_succeeded_once(
    tmp_path: Path, names: tuple[str, ...]
) -> None:
    vendor = connections["default"].vendor
    file = tmp_path / "figures.json"
    command = [sys.executable, "-m", "tests.benchmarks", "--size", "tiny", "--on", vendor, "--json", f"{file}"]
    variables = {name: value for name, value in os.environ.items() if not name.startswith("LIVE_")}
    run = subprocess.run(
        [*command, "--only", *names], cwd=ROOT, env=variables, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stdout + run.stderr
    result = json.loads(file.read_text())

    assert list(result["databases"]) == [vendor]
    assert result["databases"][vendor]["failures"] == {}
    figures = {figure["name"]: figure for figure in result["databases"][vendor]["figures"]}
    assert figures.keys() == set().union(*(_figures_of(name, vendor) for name in names))
    odd = {name: figure["values"] for name, figure in figures.items() if not all(map(_is_sane(name), figure["values"]))}
    assert odd == {}
    beside = {name for name in figures if name.startswith(BESIDE_RAW)} - WITHOUT_RAW
    assert {name for name in beside if not figures[name]["raw"] or figures[name]["ratio"] is None} == set()
    assert result["machine"].keys() >= {"cores", "Python", "SQLite", "load at start"}
    assert all(f"| `{name}` |" in run.stdout for name in figures)


def _figures_of(name: str, vendor: str) -> set[str]:
    return MEASUREMENTS[name] | (OF_POSTGRESQL.get(name, set()) if vendor == "postgresql" else set())


def _is_sane(name: str) -> Any:
    least = 0.0 if name in MAY_BE_ZERO else 1e-9
    return lambda value: math.isfinite(value) and value >= least


def test_the_command_knows_every_measurement() -> None:
    code = "import django; django.setup()\nfrom tests.benchmarks.measured import MEASURED\nprint(*MEASURED)"
    settings = {"DJANGO_SETTINGS_MODULE": "tests.benchmarks.settings"}
    run = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=os.environ | settings, capture_output=True, text=True, check=False
    )
    assert tuple(run.stdout.split()) == NAMES == tuple(MEASUREMENTS), run.stderr


def test_notes_tell_of_each_body_when_it_began_and_how_often_it_ran(tmp_path: Path) -> None:
    notes = Notes.made(tmp_path / "notes", 3)
    other = Notes(tmp_path / "notes")
    other.begin(1)
    other.end(1)
    other.begin(2)
    other.begin(2)
    assert [note.runs for note in notes.all()] == [0, 1, 2]
    assert 0 < notes[1].begin <= notes[1].end
    assert notes[1].pid == os.getpid()


def test_a_table_shows_value_spread_raw_ratio_and_the_share_of_another_figure() -> None:
    drain = {
        "name": "drain", "what": "drain 5 jobs", "unit": "jobs/s", "value": 1234.5, "spread": 0.25,
        "values": [1, 2], "raw": 2469.0, "ratio": 0.5, "goal": "", "beside": "",
    }  # fmt: skip
    held = {**drain, "name": "held", "value": 987.6, "raw": None, "ratio": None, "goal": "≥ 0.6", "beside": "drain"}
    assert report.table("PostgreSQL", [drain, held]).splitlines()[-2:] == [
        "| `drain` | drain 5 jobs | 1,234 jobs/s | 25 % | 2,469 | 0.50 |  |",
        "| `held` | drain 5 jobs | 988 jobs/s | 25 % |  |  | ≥ 0.6 (is 0.80) |",
    ]


def test_numbers_are_written_with_three_digits_or_more() -> None:
    numbers = [12345.6, 123.4, 12.34, 1.234, 0.1234, 0.0]
    assert [report.number(value) for value in numbers] == ["12,346", "123", "12.3", "1.23", "0.123", "0.000"]


def test_a_peer_that_could_not_run_is_listed_with_the_reason() -> None:
    peers: dict[str, dict[str, Any]] = {
        "one": {
            "version": "1.6",
            "one_by_one": 245.0,
            "many": None,
            "drain": 286.4,
            "pickup_p50": 5.1,
            "pickup_p99": 8.6,
        },
        "other": {"note": "Rejected: there is no Redis at 127.0.0.1:6379"},
    }
    assert report.peer_table(peers).splitlines()[-2:] == [
        "| one | 1.6 | 245 | none | 286 | 5.10 / 8.60 |  |",
        "| other |  | none | none | none |  | Rejected: there is no Redis at 127.0.0.1:6379 |",
    ]


def test_a_run_that_is_not_durable_or_not_alone_is_warned_of() -> None:
    assert report.warnings({"cores": 2, "load at start": [0.2, 0, 0]}, {"fsync": "on"}) == []
    [load, fsync] = report.warnings({"cores": 2, "load at start": [3.5, 0, 0]}, {"fsync": "off"})
    assert "3.5" in load
    assert "fsync is off" in fsync
