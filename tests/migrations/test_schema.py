"""The schema in the file is the golden one, and the models match it.

After an intended change, run `python -m tests.migrations.write_golden_schema` and review the diff.
"""

import re

import pytest
from django.apps import apps
from django.db import connection, models

from django_mqlite.fields import EpochMillisecondsField
from django_mqlite.models import Message
from django_mqlite.store.sqlite.base import MessageRow
from tests.support.schema import GOLDEN, schema_of

pytestmark = pytest.mark.django_db

TABLES = {
    "mqlite_access_keys",
    "mqlite_dedup",
    "mqlite_messages",
    "mqlite_meta",
    "mqlite_queues",
    "mqlite_receive_attempts",
    "mqlite_settlement_receipts",
    "mqlite_subscriptions",
}
TABLE_MODELS = [
    model for model in apps.get_app_config("django_mqlite").get_models() if not model._meta.proxy
]


def columns_of(table):
    with connection.cursor() as cursor:
        cursor.execute(f"PRAGMA table_xinfo({table})")
        return {name: (kind, notnull) for _, name, kind, notnull, *_ in cursor.fetchall()}


@pytest.mark.rule("11.1")
def test_schema_equals_the_golden_schema():
    assert schema_of(connection) == GOLDEN.read_text(encoding="utf-8")


def test_eight_tables_are_strict():
    with connection.cursor() as cursor:
        cursor.execute("PRAGMA table_list")
        strict = {
            name: bool(strict)
            for schema, name, kind, _, _, strict in cursor.fetchall()
            if schema == "main" and kind == "table" and name.startswith("mqlite_")
        }

    assert strict == dict.fromkeys(TABLES, True)


def test_each_table_has_a_managed_model():
    assert {model._meta.db_table for model in TABLE_MODELS} == TABLES
    assert all(model._meta.managed for model in TABLE_MODELS)


@pytest.mark.parametrize("model", TABLE_MODELS, ids=lambda model: model._meta.model_name)
def test_fields_have_name_type_and_nullability_of_their_columns(model):
    kinds = {"TEXT": (models.TextField, models.JSONField), "BLOB": (models.BinaryField,)}
    numbers = (
        models.BigIntegerField,
        models.BigAutoField,
        models.BooleanField,
        EpochMillisecondsField,
    )
    columns = columns_of(model._meta.db_table)
    fields = [field for field in model._meta.local_concrete_fields if field.column]

    assert [field.column for field in fields] == list(columns)
    for field in fields:
        kind, not_null = columns[field.column]
        assert isinstance(field, kinds.get(kind, numbers)), field
        assert field.primary_key or field.null != bool(not_null), field


def test_message_row_has_the_columns_in_order():
    """The last three columns are not read by a claim."""
    read = [
        *MessageRow._fields, "interruptions", "uncounted_retries", "progress", "kept_until",
        "error_class",
    ]  # fmt: skip

    assert read == list(columns_of("mqlite_messages"))
    assert read == [field.attname for field in Message._meta.concrete_fields]


def test_message_row_and_table_have_the_same_defaults():
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO mqlite_queues (name, created_at, updated_at) VALUES ('q', 0, 0)"
        )
        cursor.execute(
            "INSERT INTO mqlite_messages (queue, enqueued_at, body) VALUES ('q', 0, x'')"
            " RETURNING *"
        )
        ((*stored, interruptions, uncounted_retries, progress, kept_until, error_class),) = (
            cursor.fetchall()
        )

    assert (interruptions, uncounted_retries, kept_until) == (0, 0, 0)
    assert (progress, error_class) == (None, None)
    assert MessageRow._make(stored) == MessageRow(id=stored[0], queue="q", state="active")


def test_time_columns_have_the_time_field():
    for model in TABLE_MODELS:
        for field in model._meta.local_concrete_fields:
            is_time = bool(re.search(r"_(at|until)$", field.name))
            assert isinstance(field, EpochMillisecondsField) == is_time, field


def test_model_and_table_have_the_same_states():
    choices = [value for value, _ in Message._meta.get_field("state").choices]

    with connection.cursor() as cursor:
        cursor.execute("SELECT sql FROM sqlite_master WHERE name = 'mqlite_messages'")
        ((sql,),) = cursor.fetchall()
    (listed,) = re.findall(r"CHECK \(state IN\s*\((.*?)\)\)", sql, re.DOTALL)
    assert sorted(choices) == sorted(re.findall(r"'(\w+)'", listed))
