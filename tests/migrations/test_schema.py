"""The schema in the file is the golden one, and the models fit it.

After a wanted change: `python -m tests.migrations.write_golden_schema`, and read the difference.
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
def test_the_schema_in_the_file_equals_the_golden_one():
    assert schema_of(connection) == GOLDEN.read_text(encoding="utf-8")


def test_there_are_eight_tables_and_all_are_strict():
    with connection.cursor() as cursor:
        cursor.execute("PRAGMA table_list")
        strict = {
            name: bool(strict)
            for schema, name, kind, _, _, strict in cursor.fetchall()
            if schema == "main" and kind == "table" and name.startswith("mqlite_")
        }

    assert strict == dict.fromkeys(TABLES, True)


def test_every_table_has_its_model_and_every_model_its_table():
    assert {model._meta.db_table for model in TABLE_MODELS} == TABLES
    assert all(model._meta.managed for model in TABLE_MODELS)


@pytest.mark.parametrize("model", TABLE_MODELS, ids=lambda model: model._meta.model_name)
def test_the_fields_are_the_columns_in_order(model):
    fields = [field.column for field in model._meta.local_concrete_fields if field.column]

    assert fields == list(columns_of(model._meta.db_table))


@pytest.mark.parametrize("model", TABLE_MODELS, ids=lambda model: model._meta.model_name)
def test_the_fields_are_of_the_columns_types(model):
    kinds = {"TEXT": (models.TextField, models.JSONField), "BLOB": (models.BinaryField,)}
    numbers = (
        models.BigIntegerField,
        models.BigAutoField,
        models.BooleanField,
        EpochMillisecondsField,
    )
    columns = columns_of(model._meta.db_table)

    wrong = [
        field.name
        for field in model._meta.local_concrete_fields
        if field.column and not isinstance(field, kinds.get(columns[field.column][0], numbers))
    ]

    assert wrong == []


@pytest.mark.parametrize("model", TABLE_MODELS, ids=lambda model: model._meta.model_name)
def test_a_field_is_nullable_where_its_column_is(model):
    columns = columns_of(model._meta.db_table)

    wrong = [
        field.name
        for field in model._meta.local_concrete_fields
        if field.column and not field.primary_key and field.null == bool(columns[field.column][1])
    ]

    assert wrong == []


def test_a_row_of_the_store_has_the_columns_in_order():
    """All but the last, which no claim reads."""
    read = [*MessageRow._fields, "interruptions", "kept_until"]

    assert read == list(columns_of("mqlite_messages"))
    assert read == [field.attname for field in Message._meta.concrete_fields]


def test_a_rows_defaults_are_the_tables():
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO mqlite_queues (name, created_at, updated_at) VALUES ('q', 0, 0)"
        )
        cursor.execute(
            "INSERT INTO mqlite_messages (queue, enqueued_at, body) VALUES ('q', 0, x'')"
            " RETURNING *"
        )
        ((*stored, interruptions, kept_until),) = cursor.fetchall()

    assert (interruptions, kept_until) == (0, 0)
    assert MessageRow._make(stored) == MessageRow(id=stored[0], queue="q", state="active")


def test_every_time_column_is_a_time_in_the_model():
    for model in TABLE_MODELS:
        for field in model._meta.local_concrete_fields:
            is_time = bool(re.search(r"_(at|until)$", field.name))
            assert isinstance(field, EpochMillisecondsField) == is_time, field


def test_the_states_of_the_model_are_those_the_table_allows():
    choices = [value for value, _ in Message._meta.get_field("state").choices]

    with connection.cursor() as cursor:
        cursor.execute("SELECT sql FROM sqlite_master WHERE name = 'mqlite_messages'")
        ((sql,),) = cursor.fetchall()
    (listed,) = re.findall(r"CHECK \(state IN\s*\((.*?)\)\)", sql, re.DOTALL)
    assert sorted(choices) == sorted(re.findall(r"'(\w+)'", listed))
