"""The shop's consumer, which takes rows by hand."""

from __future__ import annotations

from io import StringIO

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from django.db import transaction

from django_jobs import lowlevel
from django_jobs.clock import FrozenClock
from django_jobs.models import Job
from example_project.shop import partner
from example_project.shop.models import StaffNote
from tests.factories import seconds

pytestmark = pytest.mark.django_db


def test_signing_up_pushes_the_address() -> None:
    user = partner.sign_up("ada@example.com")
    claim = lowlevel.take("partner")
    assert claim is not None
    assert claim.payload == {"email": "ada@example.com", "since": user.date_joined}


def test_an_account_that_is_rolled_back_leaves_no_row() -> None:
    with transaction.atomic():
        partner.sign_up("ada@example.com")
        transaction.set_rollback(True)
    assert (User.objects.count(), partner.turn()) == (0, None)


def test_one_turn_does_one_rows_work_and_ends_it() -> None:
    partner.sign_up("ada@example.com")
    partner.sign_up("bo@example.com")
    assert partner.turn() == "ada@example.com: known"
    assert StaffNote.objects.get().text == "ada@example.com is known to the partner"
    assert lowlevel.stats()["partner"] == {"ready": 1, "waiting": 0, "taken": 0, "dead": 0}


def test_what_the_partner_does_not_answer_is_dead_after_two_attempts() -> None:
    partner.sign_up("cy@example.invalid")
    assert partner.drain() == [
        "cy@example.invalid: the partner does not answer: ready",
        "cy@example.invalid: the partner does not answer: dead",
    ]
    [row] = lowlevel.dead("partner")
    assert (row.payload["email"], row.attempts, row.error) == ("cy@example.invalid", 2, "the partner does not answer")


def test_who_is_too_late_leaves_no_note(monkeypatch: pytest.MonkeyPatch, frozen: FrozenClock) -> None:
    partner.sign_up("ada@example.com")

    def slowly(row_id: int, email: str) -> None:
        frozen.advance(seconds(30))
        assert lowlevel.take("partner") is not None
        StaffNote.objects.create(job_id=row_id, text=email, written_at=frozen.instant)

    monkeypatch.setattr(partner, "_make_known", slowly)
    assert partner.turn() == "ada@example.com: somebody else has it"
    assert not StaffNote.objects.exists()


def test_the_command_shows_a_turn_a_drain_and_the_dead() -> None:
    out = StringIO()
    call_command("lowlevel", stdout=out)
    said = out.getvalue()
    one, two, three = User.objects.order_by("pk").values_list("username", flat=True)
    dead = Job.objects.get()
    assert said.splitlines() == [
        "Three customers have signed up:",
        "  3 ready, 0 waiting, 0 taken, 0 dead",
        "One turn:",
        f"  {one}: known",
        "  2 ready, 0 waiting, 0 taken, 0 dead",
        "Drained:",
        f"  {two}: known",
        f"  {three}: the partner does not answer: ready",
        f"  {three}: the partner does not answer: dead",
        "  0 ready, 0 waiting, 0 taken, 1 dead",
        "Dead, until somebody retries or deletes them in the admin:",
        f"  #{dead.pk} {three}: the partner does not answer",
    ]
