"""Write: the rows. Fields, constraints and indexes; QuerySets read, and their verbs call lifecycle."""

from __future__ import annotations

from django_jobs.models.job import Job, JobQuerySet
from django_jobs.models.queue import Queue
from django_jobs.models.schedule import Schedule, ScheduleSet
from django_jobs.models.stats import JobStat
from django_jobs.models.worker import Worker

__all__ = ["Job", "JobQuerySet", "JobStat", "Queue", "Schedule", "ScheduleSet", "Worker"]
