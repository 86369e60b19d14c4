"""When the shop's jobs run by themselves. The setting AUTODISCOVER names modules called so, beside `jobs`.

`@job(schedule="…")` says the same beside a function, where it takes no arguments and goes by one clock.
"""

from __future__ import annotations

from django_jobs import every
from example_project.shop.jobs import heartbeat, nightly_report

every("0 3 * * *", nightly_report, time_zone="Europe/Paris")

# Minutes in which nothing ran are over, and one that waits is enough.
every("* * * * *", heartbeat, missed="skip", overlap="skip")
