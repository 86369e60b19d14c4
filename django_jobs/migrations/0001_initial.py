"""Write: all tables, complete; columns that later releases use are there from the start."""

import django.db.models.functions.datetime
from django.db import migrations, models

import django_jobs.models.fields
from django_jobs.migrations._operations import CommentColumns, StorageParameters


class Migration(migrations.Migration):
    initial = True

    dependencies = []

    operations = [
        migrations.CreateModel(
            name="Queue",
            fields=[
                (
                    "name",
                    models.CharField(
                        help_text="the queue's name",
                        max_length=100,
                        primary_key=True,
                        serialize=False,
                        verbose_name="name",
                    ),
                ),
                (
                    "paused_at",
                    django_jobs.models.fields.InstantField(
                        blank=True, help_text="paused since; null: not paused", null=True, verbose_name="paused at"
                    ),
                ),
                (
                    "paused_by",
                    models.CharField(
                        blank=True,
                        db_default="",
                        default="",
                        help_text="who paused it",
                        max_length=150,
                        verbose_name="paused by",
                    ),
                ),
                (
                    "reason",
                    models.TextField(
                        blank=True, db_default="", default="", help_text="why it is paused", verbose_name="reason"
                    ),
                ),
            ],
            options={
                "verbose_name": "queue",
                "verbose_name_plural": "queues",
                "ordering": ("name",),
                "permissions": (("pause_queue", "Can pause and resume queues"),),
                "default_permissions": ("view",),
            },
        ),
        migrations.CreateModel(
            name="Worker",
            fields=[
                (
                    "identity",
                    models.CharField(
                        help_text="host, process id and a random part",
                        max_length=150,
                        primary_key=True,
                        serialize=False,
                        verbose_name="identity",
                    ),
                ),
                ("host", models.CharField(help_text="name of the host", max_length=255, verbose_name="host")),
                ("pid", models.IntegerField(help_text="process id on that host", verbose_name="process id")),
                (
                    "queues",
                    models.JSONField(
                        db_default=[],
                        default=list,
                        help_text="names of the queues served; empty: all",
                        verbose_name="queues",
                    ),
                ),
                (
                    "slots",
                    models.IntegerField(
                        db_default=0, default=0, help_text="jobs it can run at once", verbose_name="slots"
                    ),
                ),
                (
                    "started_at",
                    django_jobs.models.fields.InstantField(
                        help_text="when the process began", verbose_name="started at"
                    ),
                ),
                (
                    "claimed_at",
                    django_jobs.models.fields.InstantField(
                        help_text="when the database last answered a claim of it, or it had no room for more, "
                        "as of its beat",
                        null=True,
                        verbose_name="claimed at",
                    ),
                ),
                (
                    "beat_at",
                    django_jobs.models.fields.InstantField(
                        help_text="when it last said that it is alive", verbose_name="beat at"
                    ),
                ),
                (
                    "versions",
                    models.JSONField(
                        db_default={},
                        default=dict,
                        help_text="releases of the app, Django and Python",
                        verbose_name="versions",
                    ),
                ),
            ],
            options={
                "verbose_name": "worker",
                "verbose_name_plural": "workers",
                "ordering": ("identity",),
                "default_permissions": ("view",),
            },
        ),
        migrations.CreateModel(
            name="Job",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                (
                    "name",
                    models.CharField(
                        db_default="",
                        default="",
                        help_text="stable name of the performer; empty for rows of the low level",
                        max_length=100,
                        verbose_name="job",
                    ),
                ),
                ("queue", models.CharField(help_text="the queue it waits under", max_length=100, verbose_name="queue")),
                (
                    "priority",
                    models.SmallIntegerField(
                        db_default=0, default=0, help_text="-100 to 100, higher first", verbose_name="priority"
                    ),
                ),
                (
                    "args",
                    models.JSONField(
                        db_default=[], default=list, help_text="positional arguments, encoded", verbose_name="arguments"
                    ),
                ),
                (
                    "kwargs",
                    models.JSONField(
                        db_default={},
                        default=dict,
                        help_text="keyword arguments, encoded",
                        verbose_name="keyword arguments",
                    ),
                ),
                (
                    "state",
                    models.CharField(
                        choices=[
                            ("READY", "Ready"),
                            ("RUNNING", "Running"),
                            ("SUCCESSFUL", "Successful"),
                            ("FAILED", "Failed"),
                            ("CANCELLED", "Cancelled"),
                        ],
                        db_default="READY",
                        default="READY",
                        help_text="READY, RUNNING, SUCCESSFUL, FAILED or CANCELLED",
                        max_length=10,
                        verbose_name="state",
                    ),
                ),
                (
                    "run_at",
                    django_jobs.models.fields.InstantField(
                        db_default=django.db.models.functions.datetime.Now(),
                        help_text="may not start before this",
                        verbose_name="run at",
                    ),
                ),
                (
                    "expires_at",
                    django_jobs.models.fields.InstantField(
                        help_text="must not start at or after this", null=True, verbose_name="expires at"
                    ),
                ),
                (
                    "attempts",
                    models.IntegerField(
                        db_default=0, default=0, help_text="attempts begun and counted", verbose_name="attempts"
                    ),
                ),
                (
                    "max_attempts",
                    models.IntegerField(
                        db_default=20, default=20, help_text="fails for good after", verbose_name="max attempts"
                    ),
                ),
                (
                    "crashes",
                    models.IntegerField(
                        db_default=0, default=0, help_text="deaths of its process under it", verbose_name="crashes"
                    ),
                ),
                (
                    "max_crashes",
                    models.IntegerField(
                        db_default=3, default=3, help_text="fails for good after", verbose_name="max crashes"
                    ),
                ),
                (
                    "alone",
                    models.BooleanField(
                        db_default=False,
                        default=False,
                        help_text="suspected of killing its process: runs by itself",
                        verbose_name="alone",
                    ),
                ),
                (
                    "restart",
                    models.BooleanField(
                        db_default=True,
                        default=True,
                        help_text="false: once started, never starts again by itself",
                        verbose_name="restart",
                    ),
                ),
                (
                    "timeout",
                    models.FloatField(
                        help_text="seconds an attempt may take; null: no limit", null=True, verbose_name="timeout"
                    ),
                ),
                (
                    "keep",
                    models.FloatField(
                        help_text="seconds a succeeded job stays; 0: not at all; null: for ever",
                        null=True,
                        verbose_name="keep",
                    ),
                ),
                (
                    "keep_failed",
                    models.FloatField(
                        help_text="seconds a failed or cancelled job stays; null: for ever",
                        null=True,
                        verbose_name="keep failed",
                    ),
                ),
                (
                    "on_failure",
                    models.CharField(
                        db_default="",
                        default="",
                        help_text="name of the performer to queue when this fails; empty: none",
                        max_length=100,
                        verbose_name="on failure",
                    ),
                ),
                (
                    "enqueued_at",
                    django_jobs.models.fields.InstantField(
                        db_default=django.db.models.functions.datetime.Now(),
                        help_text="when the row was inserted",
                        verbose_name="enqueued at",
                    ),
                ),
                (
                    "first_started_at",
                    django_jobs.models.fields.InstantField(
                        help_text="first claim since it was queued", null=True, verbose_name="first started at"
                    ),
                ),
                (
                    "started_at",
                    django_jobs.models.fields.InstantField(
                        help_text="latest claim", null=True, verbose_name="started at"
                    ),
                ),
                (
                    "finished_at",
                    django_jobs.models.fields.InstantField(
                        help_text="set exactly when the job is finished", null=True, verbose_name="finished at"
                    ),
                ),
                (
                    "prune_at",
                    django_jobs.models.fields.InstantField(
                        help_text="may be deleted after this; null: kept for ever", null=True, verbose_name="prune at"
                    ),
                ),
                (
                    "token",
                    models.BigIntegerField(
                        help_text="the latest claim's; stays after the end to say which claim ended it",
                        null=True,
                        verbose_name="token",
                    ),
                ),
                (
                    "lease_expires_at",
                    django_jobs.models.fields.InstantField(
                        help_text="the claim holds until this", null=True, verbose_name="lease expires at"
                    ),
                ),
                (
                    "deadline_at",
                    django_jobs.models.fields.InstantField(
                        help_text="last resort: claim + timeout + grace + lease", null=True, verbose_name="deadline at"
                    ),
                ),
                (
                    "worker",
                    models.CharField(
                        help_text="identity of the process that holds it; null: not held",
                        max_length=150,
                        null=True,
                        verbose_name="worker",
                    ),
                ),
                (
                    "last_worker",
                    models.CharField(
                        help_text="identity of the latest process that held it",
                        max_length=150,
                        null=True,
                        verbose_name="last worker",
                    ),
                ),
                (
                    "unique_key",
                    models.CharField(
                        help_text="one job per key waiting, running or held",
                        max_length=300,
                        null=True,
                        verbose_name="unique key",
                    ),
                ),
                (
                    "unique_until",
                    django_jobs.models.fields.InstantField(
                        help_text="the key holds until this, whether ended or not",
                        null=True,
                        verbose_name="unique until",
                    ),
                ),
                (
                    "waiting_key",
                    models.CharField(
                        help_text="one job per key waiting to start",
                        max_length=300,
                        null=True,
                        verbose_name="waiting key",
                    ),
                ),
                (
                    "errors",
                    models.JSONField(
                        db_default=[],
                        default=list,
                        help_text="what went wrong, oldest first; the first and newest 19",
                        verbose_name="errors",
                    ),
                ),
                (
                    "fingerprint",
                    models.CharField(
                        help_text="equal for failures of one job at one place",
                        max_length=40,
                        null=True,
                        verbose_name="fingerprint",
                    ),
                ),
                (
                    "result",
                    models.JSONField(
                        help_text="what the performer returned, encoded", null=True, verbose_name="result"
                    ),
                ),
                (
                    "progress",
                    models.JSONField(
                        help_text="done, total and message, as the job said", null=True, verbose_name="progress"
                    ),
                ),
                (
                    "meta",
                    models.JSONField(
                        db_default={},
                        default=dict,
                        help_text="language, time zone, trace headers, what the caller adds",
                        verbose_name="meta",
                    ),
                ),
                (
                    "schedule",
                    models.CharField(
                        help_text="name of the schedule that fired it",
                        max_length=200,
                        null=True,
                        verbose_name="schedule",
                    ),
                ),
                (
                    "tick",
                    django_jobs.models.fields.InstantField(
                        help_text="the due moment of the schedule it was fired for", null=True, verbose_name="tick"
                    ),
                ),
            ],
            options={
                "verbose_name": "job",
                "verbose_name_plural": "jobs",
                "ordering": ("-id",),
                "permissions": (
                    ("retry_job", "Can retry, run now and copy jobs"),
                    ("cancel_job", "Can cancel jobs"),
                    ("reschedule_job", "Can move jobs to another queue, priority or time"),
                    ("run_job", "Can enqueue jobs and run schedules now"),
                    ("view_job_args", "Can see arguments and results of jobs"),
                ),
                "default_permissions": ("view", "delete"),
                "indexes": [
                    models.Index(
                        models.F("queue"),
                        models.OrderBy(models.F("priority"), descending=True),
                        models.F("run_at"),
                        models.F("id"),
                        condition=models.Q(("name__gt", ""), ("state", "READY")),
                        name="django_jobs_claim",
                    ),
                    models.Index(
                        models.F("queue"),
                        models.OrderBy(models.F("priority"), descending=True),
                        models.F("run_at"),
                        models.F("id"),
                        condition=models.Q(("name", ""), ("state", "READY")),
                        name="django_jobs_take",
                    ),
                    models.Index(
                        condition=models.Q(("worker__isnull", False)), fields=["worker"], name="django_jobs_held"
                    ),
                    models.Index(
                        condition=models.Q(("expires_at__isnull", False), ("state", "READY")),
                        fields=["expires_at"],
                        name="django_jobs_expiry",
                    ),
                    models.Index(
                        condition=models.Q(("prune_at__isnull", False)), fields=["prune_at"], name="django_jobs_prune"
                    ),
                    models.Index(
                        condition=models.Q(("state", "FAILED")),
                        fields=["fingerprint", "id"],
                        name="django_jobs_trouble",
                    ),
                    models.Index(
                        condition=models.Q(("schedule__isnull", False)),
                        fields=["schedule", "id"],
                        name="django_jobs_fired",
                    ),
                ],
                "constraints": [
                    models.UniqueConstraint(
                        condition=models.Q(
                            ("unique_key__isnull", False),
                            models.Q(
                                ("state__in", ("READY", "RUNNING")),
                                ("worker__isnull", False),
                                ("unique_until__isnull", False),
                                _connector="OR",
                            ),
                        ),
                        fields=("unique_key",),
                        name="django_jobs_unique",
                    ),
                    models.UniqueConstraint(
                        condition=models.Q(("state", "READY"), ("waiting_key__isnull", False)),
                        fields=("waiting_key",),
                        name="django_jobs_waiting",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("state__in", ["READY", "RUNNING", "SUCCESSFUL", "FAILED", "CANCELLED"])),
                        name="django_jobs_state",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("state", "RUNNING"), _negated=True),
                            models.Q(
                                ("lease_expires_at__isnull", False), ("token__isnull", False), ("worker__isnull", False)
                            ),
                            _connector="OR",
                        ),
                        name="django_jobs_running",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("worker__isnull", True),
                            models.Q(
                                ("lease_expires_at__isnull", False),
                                ("state__in", ("RUNNING", "CANCELLED")),
                                ("token__isnull", False),
                            ),
                            _connector="OR",
                        ),
                        name="django_jobs_holding",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(
                                ("finished_at__isnull", False), ("state__in", ("SUCCESSFUL", "FAILED", "CANCELLED"))
                            ),
                            models.Q(("finished_at__isnull", True), ("state__in", ("READY", "RUNNING"))),
                            _connector="OR",
                        ),
                        name="django_jobs_finished",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("priority__gte", -100), ("priority__lte", 100)), name="django_jobs_priority"
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="JobStat",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                (
                    "minute",
                    django_jobs.models.fields.InstantField(
                        help_text="the beginning of the minute, or of the hour once merged", verbose_name="minute"
                    ),
                ),
                ("queue", models.CharField(help_text="the jobs' queue", max_length=100, verbose_name="queue")),
                ("name", models.CharField(help_text="the jobs' name", max_length=100, verbose_name="job")),
                (
                    "process",
                    models.CharField(
                        db_default="",
                        default="",
                        help_text="who counted; empty once merged",
                        max_length=150,
                        verbose_name="process",
                    ),
                ),
                (
                    "succeeded",
                    models.BigIntegerField(
                        db_default=0, default=0, help_text="jobs that succeeded", verbose_name="succeeded"
                    ),
                ),
                (
                    "failed",
                    models.BigIntegerField(
                        db_default=0, default=0, help_text="jobs that failed for good", verbose_name="failed"
                    ),
                ),
                (
                    "cancelled",
                    models.BigIntegerField(
                        db_default=0, default=0, help_text="jobs that were cancelled", verbose_name="cancelled"
                    ),
                ),
                (
                    "retried",
                    models.BigIntegerField(
                        db_default=0, default=0, help_text="runs that will be followed", verbose_name="retried"
                    ),
                ),
                (
                    "snoozed",
                    models.BigIntegerField(db_default=0, default=0, help_text="runs put off", verbose_name="snoozed"),
                ),
                (
                    "wait_seconds",
                    models.FloatField(
                        db_default=0.0, default=0, help_text="sum of waiting times", verbose_name="wait seconds"
                    ),
                ),
                (
                    "run_seconds",
                    models.FloatField(
                        db_default=0.0, default=0, help_text="sum of running times", verbose_name="run seconds"
                    ),
                ),
                (
                    "wait_buckets",
                    models.JSONField(
                        db_default=[], default=list, help_text="histogram of waiting times", verbose_name="wait buckets"
                    ),
                ),
                (
                    "run_buckets",
                    models.JSONField(
                        db_default=[], default=list, help_text="histogram of running times", verbose_name="run buckets"
                    ),
                ),
            ],
            options={
                "verbose_name": "figure",
                "verbose_name_plural": "figures",
                "default_permissions": (),
                "constraints": [
                    models.UniqueConstraint(fields=("minute", "queue", "name", "process"), name="django_jobs_stat")
                ],
            },
        ),
        migrations.CreateModel(
            name="Schedule",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                (
                    "name",
                    models.CharField(help_text="what people call it", max_length=200, unique=True, verbose_name="name"),
                ),
                (
                    "owner",
                    models.CharField(
                        blank=True,
                        db_default="",
                        default="",
                        help_text="the project whose code declares it",
                        max_length=200,
                        verbose_name="owner",
                    ),
                ),
                (
                    "version",
                    models.BigIntegerField(
                        db_default=1, default=1, help_text="raised by every edit", verbose_name="version"
                    ),
                ),
                (
                    "cron",
                    models.CharField(
                        blank=True,
                        db_default="",
                        default="",
                        help_text="empty for an interval",
                        max_length=200,
                        verbose_name="cron line",
                    ),
                ),
                (
                    "every_seconds",
                    models.FloatField(
                        blank=True,
                        help_text="the interval; null for a cron line",
                        null=True,
                        verbose_name="every seconds",
                    ),
                ),
                (
                    "time_zone",
                    models.CharField(
                        blank=True,
                        db_default="",
                        default="",
                        help_text="empty: the setting's",
                        max_length=100,
                        verbose_name="time zone",
                    ),
                ),
                ("performer", models.CharField(help_text="name of the performer", max_length=100, verbose_name="job")),
                (
                    "args",
                    models.JSONField(
                        blank=True,
                        db_default=[],
                        default=list,
                        help_text="positional arguments, encoded",
                        verbose_name="arguments",
                    ),
                ),
                (
                    "kwargs",
                    models.JSONField(
                        blank=True,
                        db_default={},
                        default=dict,
                        help_text="keyword arguments, encoded",
                        verbose_name="keyword arguments",
                    ),
                ),
                (
                    "queue",
                    models.CharField(
                        blank=True,
                        db_default="",
                        default="",
                        help_text="empty: the performer's",
                        max_length=100,
                        verbose_name="queue",
                    ),
                ),
                (
                    "priority",
                    models.SmallIntegerField(
                        blank=True, help_text="null: the performer's", null=True, verbose_name="priority"
                    ),
                ),
                (
                    "enabled",
                    models.BooleanField(
                        db_default=True, default=True, help_text="fires while true", verbose_name="enabled"
                    ),
                ),
                (
                    "removed",
                    models.BooleanField(
                        db_default=False,
                        default=False,
                        help_text="no longer declared by its owner's code",
                        verbose_name="removed",
                    ),
                ),
                (
                    "origin",
                    models.CharField(
                        choices=[("code", "in code"), ("admin", "in the admin")],
                        db_default="admin",
                        default="admin",
                        help_text="code or admin",
                        max_length=10,
                        verbose_name="origin",
                    ),
                ),
                (
                    "missed",
                    models.CharField(
                        choices=[("once", "run once"), ("skip", "skip"), ("all", "run all")],
                        db_default="once",
                        default="once",
                        help_text="what to do with ticks that passed while nothing ran: once, skip or all",
                        max_length=10,
                        verbose_name="missed runs",
                    ),
                ),
                (
                    "overlap",
                    models.CharField(
                        choices=[("allow", "allow"), ("skip", "skip")],
                        db_default="allow",
                        default="allow",
                        help_text="allow, or skip while the earlier run waits or runs",
                        max_length=10,
                        verbose_name="overlap",
                    ),
                ),
                (
                    "jitter",
                    models.FloatField(
                        db_default=0.0, default=0, help_text="up to so many seconds late", verbose_name="jitter"
                    ),
                ),
                (
                    "starts",
                    django_jobs.models.fields.InstantField(
                        blank=True, help_text="no tick before this", null=True, verbose_name="starts"
                    ),
                ),
                (
                    "ends",
                    django_jobs.models.fields.InstantField(
                        blank=True, help_text="no tick after this", null=True, verbose_name="ends"
                    ),
                ),
                (
                    "last_at",
                    django_jobs.models.fields.InstantField(
                        blank=True, help_text="the latest tick that fired", null=True, verbose_name="last at"
                    ),
                ),
                (
                    "next_at",
                    django_jobs.models.fields.InstantField(
                        blank=True, help_text="the tick that fires next", null=True, verbose_name="next at"
                    ),
                ),
                (
                    "skipped",
                    models.BigIntegerField(
                        db_default=0, default=0, help_text="ticks that were skipped", verbose_name="skipped"
                    ),
                ),
                (
                    "error",
                    models.TextField(
                        blank=True,
                        db_default="",
                        default="",
                        help_text="why it can't fire; empty: it can",
                        verbose_name="error",
                    ),
                ),
            ],
            options={
                "verbose_name": "schedule",
                "verbose_name_plural": "schedules",
                "ordering": ("name",),
                "indexes": [
                    models.Index(
                        condition=models.Q(("enabled", True), ("next_at__isnull", False), ("removed", False)),
                        fields=["next_at"],
                        name="django_jobs_due_tick",
                    )
                ],
            },
        ),
        CommentColumns(["Job", "Schedule", "Queue", "Worker", "JobStat"]),
        # Every job is inserted once, updated two or three times and deleted: room for updates in place, and a vacuum
        # that comes by number of rows, never slows down, and never takes the lock that shrinking the file needs.
        StorageParameters(
            "Job",
            fillfactor=85,
            autovacuum_vacuum_scale_factor=0,
            autovacuum_vacuum_threshold=1000,
            autovacuum_vacuum_cost_delay=0,
            vacuum_truncate="off",
        ),
    ]
