"""Many sign-ups at once, over HTTP, and a count of what came of them."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from http.client import HTTPConnection, HTTPException
from http.cookies import SimpleCookie
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlencode

from django.contrib.auth.models import User
from django.urls import reverse

from django_jobs.models import Job
from django_jobs.states import State
from example_project.demo.server import HOST
from example_project.demo.stopping import Stop
from example_project.mail import newest_first
from example_project.shop.jobs import send_welcome

CLIENTS = 6
"""How many browsers there are."""


# -- signing up


def sign_up_all(port: int, addresses: Sequence[str], *, stop: Stop) -> list[str]:
    """Sign all addresses up at the site on `port`, and give a line for each that was not accepted."""
    shares = [share for number in range(CLIENTS) if (share := addresses[number::CLIENTS])]
    with ThreadPoolExecutor(len(shares)) as clients:
        answers = clients.map(lambda share: _browse(port, share, stop), shares)
        return [problem for problems in answers for problem in problems]


def _browse(port: int, addresses: Sequence[str], stop: Stop) -> list[str]:
    """Do as one browser does: open the form, keep its cookie and the connection, and post."""
    browser = HTTPConnection(HOST, port, timeout=60)
    try:
        return list(_post(browser, addresses, stop))
    finally:
        browser.close()


def _post(browser: HTTPConnection, addresses: Sequence[str], stop: Stop) -> Iterator[str]:
    path = reverse("shop:sign_up")
    token = _token(browser, path)
    headers = {"Content-Type": "application/x-www-form-urlencoded", "Cookie": f"csrftoken={token}"}
    for address in addresses:
        if stop.is_said:
            return
        try:
            browser.request("POST", path, urlencode({"email": address, "csrfmiddlewaretoken": token}), headers)
            response = browser.getresponse()
            response.read()
        except (OSError, HTTPException) as error:
            browser.close()
            yield f"{address}: {error!r}"
        else:
            if response.status != 302:
                yield f"{address}: the site answered {response.status} {response.reason}"


def _token(browser: HTTPConnection, path: str) -> str:
    browser.request("GET", path)
    response = browser.getresponse()
    response.read()
    return SimpleCookie(response.headers["Set-Cookie"])["csrftoken"].value


# -- waiting


class Welcome(NamedTuple):
    """A welcome job of the burst."""

    state: str
    enqueued_at: datetime
    finished_at: datetime | None


def newest_id() -> int:
    """Give the id of the newest job there is."""
    return Job.objects.values_list("pk", flat=True).first() or 0


def welcomes(addresses: Sequence[str], *, after: int) -> list[Welcome]:
    """Find the welcome jobs for these addresses that are newer than the one with the id `after`."""
    # Each run has a domain of its own.
    domain = addresses[0].partition("@")[2]
    users = set(User.objects.filter(username__endswith=f"@{domain}").values_list("pk", flat=True))
    rows = Job.objects.named(send_welcome.name).filter(pk__gt=after)
    columns = rows.values_list("args", "state", "enqueued_at", "finished_at")
    return [Welcome(state, begun, ended) for args, state, begun, ended in columns if args[0] in users]


def wait_until(is_done: Callable[[], bool], *, timeout: float, stop: Stop) -> bool:
    """Ask again and again, less and less often, until it is true, the time is over or the word to stop comes."""
    give_up, pause = time.monotonic() + timeout, 0.05
    while not is_done():
        if time.monotonic() > give_up or stop.wait(pause):
            return False
        pause = min(pause * 1.5, 1.0)
    return True


# -- counting


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """What came of a burst. `seconds` went by from the first job queued to the last one done."""

    posted: int
    queued: int
    succeeded: int
    failed: int
    missing: int
    doubled: int
    seconds: float

    @property
    def is_right(self) -> bool:
        """Whether each sign-up has one job that succeeded, and one mail."""
        return self.queued == self.succeeded == self.posted and not (self.failed or self.missing or self.doubled)

    def __str__(self) -> str:
        rate = self.succeeded / self.seconds if self.seconds else 0.0
        rows = (
            ("sign-ups posted", f"{self.posted}"),
            ("jobs queued", f"{self.queued}"),
            ("jobs succeeded", f"{self.succeeded}"),
            ("jobs failed", f"{self.failed}"),
            ("mails missing", f"{self.missing}"),
            ("mails doubled", f"{self.doubled}"),
            ("jobs per second", f"{rate:.1f}"),
        )
        return "\n".join(f"{label:<16}{value:>10}" for label, value in rows)


def tally(addresses: Sequence[str], *, after: int, folder: Path) -> Tally:
    """Count the jobs newer than the one with the id `after`, and the mails in `folder`."""
    jobs = welcomes(addresses, after=after)
    states = Counter(job.state for job in jobs)
    mails = Counter(mail.to for mail in newest_first(folder))
    ends = [job.finished_at for job in jobs if job.finished_at is not None]
    return Tally(
        posted=len(addresses),
        queued=len(jobs),
        succeeded=states[State.SUCCESSFUL],
        failed=states[State.FAILED],
        missing=sum(mails[address] == 0 for address in addresses),
        doubled=sum(mails[address] > 1 for address in addresses),
        seconds=(max(ends) - min(job.enqueued_at for job in jobs)).total_seconds() if ends else 0.0,
    )
