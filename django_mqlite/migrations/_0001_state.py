"""The migration state of the eight tables; the tables themselves are created by raw SQL."""

import django.core.validators
from django.db import migrations, models

import django_mqlite.fields

STATE = [
    migrations.CreateModel(
        name="AccessKey",
        fields=[
            (
                "name",
                models.TextField(primary_key=True, serialize=False, verbose_name="name"),
            ),
            ("digest", models.TextField(unique=True)),
            (
                "rights",
                django_mqlite.fields.DocumentField(default=dict, verbose_name="rights"),
            ),
            ("created_at", django_mqlite.fields.EpochMillisecondsField(verbose_name="created at")),
            ("expires_at", django_mqlite.fields.EpochMillisecondsField(verbose_name="expires at")),
            (
                "last_used_at",
                django_mqlite.fields.EpochMillisecondsField(verbose_name="last used at"),
            ),
            ("revoked_at", django_mqlite.fields.EpochMillisecondsField(verbose_name="revoked at")),
        ],
        options={
            "verbose_name": "access key",
            "verbose_name_plural": "access keys",
            "db_table": "mqlite_access_keys",
            "permissions": [("revoke_accesskey", "Can revoke access keys")],
        },
    ),
    migrations.CreateModel(
        name="Dedup",
        fields=[
            (
                "pk",
                models.CompositePrimaryKey(
                    "queue", "key", blank=True, editable=False, primary_key=True, serialize=False
                ),
            ),
            ("queue", models.TextField()),
            ("key", models.TextField()),
            ("data_sha256", models.TextField()),
            ("message", models.BigIntegerField()),
            ("expires_at", django_mqlite.fields.EpochMillisecondsField()),
        ],
        options={
            "db_table": "mqlite_dedup",
        },
    ),
    migrations.CreateModel(
        name="Message",
        fields=[
            ("id", models.BigAutoField(primary_key=True, serialize=False)),
            ("queue", models.TextField(verbose_name="queue")),
            (
                "state",
                models.TextField(
                    choices=[
                        ("active", "active"),
                        ("locked", "locked"),
                        ("deferred", "deferred"),
                        ("scheduled", "scheduled"),
                        ("completed", "completed"),
                        ("dead_lettered", "dead_lettered"),
                    ],
                    default="active",
                    verbose_name="state",
                ),
            ),
            ("priority", models.BigIntegerField(default=0, verbose_name="priority")),
            ("line", models.TextField(null=True, verbose_name="line")),
            ("blocked", models.BooleanField(default=False, verbose_name="blocked")),
            ("visible_at", django_mqlite.fields.EpochMillisecondsField(verbose_name="visible at")),
            (
                "enqueued_at",
                django_mqlite.fields.EpochMillisecondsField(verbose_name="enqueued at"),
            ),
            ("expires_at", django_mqlite.fields.EpochMillisecondsField(verbose_name="expires at")),
            ("locked_at", django_mqlite.fields.EpochMillisecondsField(verbose_name="locked at")),
            (
                "locked_until",
                django_mqlite.fields.EpochMillisecondsField(verbose_name="locked until"),
            ),
            ("lock_token", models.TextField(null=True, verbose_name="lock token")),
            ("locked_by", models.TextField(null=True, verbose_name="locked by")),
            ("delivery_count", models.BigIntegerField(default=0, verbose_name="delivery count")),
            (
                "max_delivery_count",
                models.BigIntegerField(default=0, verbose_name="maximum delivery count"),
            ),
            ("message_id", models.TextField(null=True, verbose_name="message id")),
            ("unique_key", models.TextField(null=True, verbose_name="unique key")),
            ("correlation_id", models.TextField(null=True, verbose_name="correlation id")),
            ("reply_to", models.TextField(null=True, verbose_name="reply to")),
            ("group_id", models.TextField(null=True, verbose_name="group id")),
            ("subject", models.TextField(null=True, verbose_name="subject")),
            ("content_type", models.TextField(null=True, verbose_name="content type")),
            (
                "properties",
                django_mqlite.fields.DocumentField(null=True, verbose_name="properties"),
            ),
            ("body", models.BinaryField(verbose_name="body")),
            ("errors", django_mqlite.fields.DocumentField(null=True, verbose_name="errors")),
            ("result", django_mqlite.fields.DocumentField(null=True, verbose_name="result")),
            (
                "finished_at",
                django_mqlite.fields.EpochMillisecondsField(verbose_name="finished at"),
            ),
            ("dead_letter_reason", models.TextField(null=True, verbose_name="dead-letter reason")),
            (
                "dead_letter_description",
                models.TextField(null=True, verbose_name="dead-letter description"),
            ),
            ("interruptions", models.BigIntegerField(default=0, verbose_name="interruptions")),
            (
                "uncounted_retries",
                models.BigIntegerField(default=0, verbose_name="uncounted retries"),
            ),
            ("progress", django_mqlite.fields.DocumentField(null=True, verbose_name="progress")),
            ("kept_until", django_mqlite.fields.EpochMillisecondsField(verbose_name="kept until")),
            (
                "error_class",
                django_mqlite.fields.ComputedTextField(null=True, verbose_name="error class"),
            ),
        ],
        options={
            "verbose_name": "message",
            "verbose_name_plural": "messages",
            "db_table": "mqlite_messages",
            "permissions": [
                ("redrive_message", "Can redrive dead letters"),
                ("purge_message", "Can purge dead letters"),
                ("release_message", "Can release leases"),
                ("discard_message", "Can discard messages"),
                ("view_body", "Can view bodies, results and the texts of errors"),
                ("redrive_edited_message", "Can redrive dead letters with an edited body"),
                ("enqueue_message", "Can enqueue messages in the admin"),
            ],
        },
    ),
    migrations.CreateModel(
        name="MetaEntry",
        fields=[
            ("key", models.TextField(primary_key=True, serialize=False)),
            ("value", models.TextField()),
            ("updated_at", django_mqlite.fields.EpochMillisecondsField()),
        ],
        options={
            "db_table": "mqlite_meta",
        },
    ),
    migrations.CreateModel(
        name="Queue",
        fields=[
            ("name", models.TextField(primary_key=True, serialize=False, verbose_name="name")),
            (
                "kind",
                models.TextField(
                    choices=[("queue", "queue"), ("subscription", "subscription")],
                    default="queue",
                    verbose_name="kind",
                ),
            ),
            (
                "ordering_mode",
                models.TextField(
                    choices=[
                        ("standard", "standard"),
                        ("group_fifo", "group_fifo"),
                        ("strict_fifo", "strict_fifo"),
                    ],
                    default="standard",
                    verbose_name="ordering mode",
                ),
            ),
            (
                "lock_duration_ms",
                django_mqlite.fields.MillisecondsField(default=30000, verbose_name="lock duration"),
            ),
            (
                "max_delivery_count",
                models.BigIntegerField(
                    default=10,
                    validators=[django.core.validators.MinValueValidator(1)],
                    verbose_name="maximum delivery count",
                ),
            ),
            (
                "backoff_base_ms",
                django_mqlite.fields.MillisecondsField(default=1000, verbose_name="backoff base"),
            ),
            (
                "backoff_max_ms",
                django_mqlite.fields.MillisecondsField(
                    default=3600000, verbose_name="backoff maximum"
                ),
            ),
            (
                "default_ttl_ms",
                django_mqlite.fields.MillisecondsField(
                    default=0, help_text="0 means unlimited.", verbose_name="default time to live"
                ),
            ),
            (
                "dead_letter_on_expire",
                models.BooleanField(default=True, verbose_name="dead-letter on expiry"),
            ),
            (
                "dedup_window_ms",
                django_mqlite.fields.MillisecondsField(
                    default=0,
                    help_text="0 disables deduplication.",
                    verbose_name="deduplication window",
                ),
            ),
            (
                "retain_completed_ms",
                django_mqlite.fields.MillisecondsField(
                    default=0,
                    help_text="0 deletes completed messages immediately.",
                    verbose_name="keep completed messages for",
                ),
            ),
            (
                "dlq_max_age_ms",
                django_mqlite.fields.MillisecondsField(
                    default=0, verbose_name="dead letters: maximum age"
                ),
            ),
            (
                "dlq_max_count",
                models.BigIntegerField(default=0, verbose_name="dead letters: maximum count"),
            ),
            (
                "dlq_max_bytes",
                models.BigIntegerField(default=0, verbose_name="dead letters: maximum bytes"),
            ),
            (
                "max_in_flight",
                models.BigIntegerField(
                    default=0,
                    help_text="0 means unlimited.",
                    validators=[django.core.validators.MinValueValidator(0)],
                    verbose_name="maximum in flight",
                ),
            ),
            ("rate_count", models.BigIntegerField(default=0, verbose_name="rate: deliveries")),
            (
                "rate_period_ms",
                django_mqlite.fields.MillisecondsField(default=0, verbose_name="rate: period"),
            ),
            ("rate_tokens", models.BigIntegerField(default=0, verbose_name="rate: tokens")),
            (
                "rate_updated_at",
                django_mqlite.fields.EpochMillisecondsField(verbose_name="rate: updated at"),
            ),
            ("paused", models.BooleanField(default=False, verbose_name="paused")),
            ("created_at", django_mqlite.fields.EpochMillisecondsField(verbose_name="created at")),
            ("updated_at", django_mqlite.fields.EpochMillisecondsField(verbose_name="updated at")),
        ],
        options={
            "verbose_name": "queue",
            "verbose_name_plural": "queues",
            "db_table": "mqlite_queues",
            "permissions": [("pause_queue", "Can pause and resume queues")],
        },
    ),
    migrations.CreateModel(
        name="ReceiveAttempt",
        fields=[
            (
                "pk",
                models.CompositePrimaryKey(
                    "queue",
                    "attempt_id",
                    blank=True,
                    editable=False,
                    primary_key=True,
                    serialize=False,
                ),
            ),
            ("queue", models.TextField()),
            ("attempt_id", models.TextField()),
            ("leases", models.TextField()),
            ("deleted", models.TextField(null=True)),
            ("expires_at", django_mqlite.fields.EpochMillisecondsField()),
        ],
        options={
            "db_table": "mqlite_receive_attempts",
        },
    ),
    migrations.CreateModel(
        name="SettlementReceipt",
        fields=[
            (
                "pk",
                models.CompositePrimaryKey(
                    "message",
                    "lock_token",
                    blank=True,
                    editable=False,
                    primary_key=True,
                    serialize=False,
                ),
            ),
            ("message", models.BigIntegerField()),
            ("lock_token", models.TextField()),
            ("queue", models.TextField()),
            ("verb", models.TextField()),
            ("arguments", models.TextField()),
            ("expires_at", django_mqlite.fields.EpochMillisecondsField()),
        ],
        options={
            "db_table": "mqlite_settlement_receipts",
        },
    ),
    migrations.CreateModel(
        name="Subscription",
        fields=[
            (
                "subscription",
                models.TextField(primary_key=True, serialize=False, verbose_name="subscription"),
            ),
            ("topic", models.TextField(verbose_name="topic")),
            ("filter", models.TextField(blank=True, default="", verbose_name="filter")),
            ("expression", models.TextField(blank=True, default="", editable=False)),
            ("created_at", django_mqlite.fields.EpochMillisecondsField(verbose_name="created at")),
        ],
        options={
            "verbose_name": "subscription",
            "verbose_name_plural": "subscriptions",
            "db_table": "mqlite_subscriptions",
        },
    ),
    migrations.CreateModel(
        name="DeadLetter",
        fields=[],
        options={
            "verbose_name": "dead letter",
            "verbose_name_plural": "dead letters",
            "proxy": True,
            "indexes": [],
            "constraints": [],
        },
        bases=("django_mqlite.message",),
    ),
    migrations.CreateModel(
        name="Schedule",
        fields=[],
        options={
            "verbose_name": "recurring schedule",
            "verbose_name_plural": "recurring schedules",
            "permissions": [
                ("pause_schedule", "Can pause and resume recurring schedules"),
                ("run_schedule", "Can run recurring schedules now"),
            ],
            "proxy": True,
            "indexes": [],
            "constraints": [],
        },
        bases=("django_mqlite.metaentry",),
    ),
]
