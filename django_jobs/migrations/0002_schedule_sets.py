from __future__ import annotations

from django.db import migrations, models

import django_jobs.models.fields
from django_jobs.migrations._operations import CommentColumns


class Migration(migrations.Migration):
    dependencies = [("django_jobs", "0001_initial")]

    operations = [
        migrations.CreateModel(
            name="ScheduleSet",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                (
                    "owner",
                    models.CharField(
                        help_text="the project whose code declares it", max_length=200, verbose_name="owner"
                    ),
                ),
                (
                    "hash",
                    models.CharField(help_text="what its schedules say, in short", max_length=64, verbose_name="hash"),
                ),
                (
                    "counts_since",
                    django_jobs.models.fields.InstantField(
                        help_text="when it last took over", verbose_name="counts since"
                    ),
                ),
            ],
            options={
                "verbose_name": "set of schedules",
                "verbose_name_plural": "sets of schedules",
                "default_permissions": (),
                "constraints": [models.UniqueConstraint(fields=("owner", "hash"), name="django_jobs_schedule_set")],
            },
        ),
        CommentColumns(["ScheduleSet"]),
    ]
