"""The reference has every public name, and no other."""

import re
from inspect import getattr_static
from types import ModuleType

import pytest
from django.apps import apps

import django_mqlite
from django_mqlite import conf, managers, models, signals, sqlite3, task_backend, testing
from django_mqlite.message import MessageOptions
from django_mqlite.schedules import ScheduleOptions
from django_mqlite.types import QueueConfig, State
from tests.support.pages import blocks_of
from tests.support.source import ROOT
from tests.support.statements import statements

DOCS = ROOT / "docs"
REFERENCE = DOCS / "reference"
DIRECTIVE = re.compile(r"\.\. (auto\w+|currentmodule):: ([\w.]+)(?:\(\))?\n((?:   :.*\n)*)")


def documented() -> dict[str, set[str]]:
    """Return the documented members of each name in the reference, by its full path."""
    documented: dict[str, set[str]] = {}
    for page in REFERENCE.glob("*.md"):
        module = ""
        for block in blocks_of(page):
            if block.language == "{eval-rst}":
                for kind, name, options in DIRECTIVE.findall(block.text):
                    if kind in ("currentmodule", "automodule"):
                        module = name
                    else:
                        path = name if "." in name else f"{module}.{name}"
                        members = re.search(r":members:(.*)", options)
                        documented[path] = set(re.findall(r"\w+", members[1] if members else ""))
    return documented


def text_without_promise() -> str:
    return (REFERENCE / "api.md").read_text(encoding="utf-8").partition("## Without a promise")[2]


def without_promise() -> dict[str, set[str]]:
    items = re.findall(r"^- `(\w+)`: (.*)$", text_without_promise(), re.MULTILINE)
    return {name: set(re.findall(r"`(\w+)`", members)) for name, members in items}


NAMES = documented()
PACKAGES = (django_mqlite, sqlite3, task_backend, testing)
VERBS = {
    "abandon", "claim", "complete", "defer", "enqueue", "publish", "purge", "redrive", "reject",
    "renew", "schedule", "settle",
}  # fmt: skip
CLASSES = {
    "Message": models.Message,
    "Queue": models.Queue,
    "MessageManager": managers.MessageManager,
    "DeadLetterManager": managers.DeadLetterManager,
    "QueueManager": managers.QueueManager,
    "SubscriptionManager": managers.SubscriptionManager,
}


def own_members(cls: type) -> set[str]:
    """Return the names that the class and its bases in this package define."""
    fields = {field.attname for field in cls._meta.fields} if hasattr(cls, "_meta") else set()
    return {
        name
        for base in cls.__mro__
        if base.__module__.startswith("django_mqlite")
        for name in vars(base)
        if not name.startswith("_")
        and name not in fields
        and not re.match(r"(objects|get_\w+_display|get_(next|previous)_by_\w+)$", name)
        and not isinstance(getattr_static(cls, name), type)
    }


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.__name__)
def test_reference_has_the_public_names_of_a_package(package):
    inside = f"{package.__name__}."
    shown = {path.removeprefix(inside) for path in NAMES if path.startswith(inside)}

    assert {name for name in shown if "." not in name} == set(package.__all__)


def test_package_has_no_public_names_by_accident():
    public = {
        name
        for name, value in vars(django_mqlite).items()
        if not name.startswith("_") and not isinstance(value, ModuleType)
    }

    assert public == set(django_mqlite.__all__)


@pytest.mark.parametrize("name", CLASSES)
def test_member_is_in_the_reference_or_has_no_promise(name):
    (shown,) = [members for path, members in NAMES.items() if path.endswith(f".{name}")]

    assert own_members(CLASSES[name]) == shown | without_promise().get(name, set())


def test_signals_are_in_the_reference():
    names = {name for name, value in vars(signals).items() if isinstance(value, signals.Signal)}

    assert {path for path in NAMES if path.startswith("django_mqlite.signals.")} == {
        f"django_mqlite.signals.{name}" for name in names
    }


def test_models_are_in_the_reference_or_have_no_promise():
    defined = {model.__name__ for model in apps.get_app_config("django_mqlite").get_models()}
    shown = {path.rpartition(".")[2] for path in NAMES if path.startswith("django_mqlite.models.")}

    assert shown == {"AccessKey", "DeadLetter", "Message", "Queue", "Schedule", "Subscription"}
    assert defined - shown <= set(re.findall(r"`(\w+)`", text_without_promise()))


def table_of(page: str, heading: str) -> dict[str, str]:
    """Return the last column under the heading, by each name in the first column."""
    text = (DOCS / page).read_text(encoding="utf-8").partition(heading)[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (`.*?) \|(?:.*\|)? (.*?) \|$", text, re.MULTILINE)
    return {name: default for cell, default in rows for name in re.findall(r"`([\w-]+)`", cell)}


def test_settings_are_in_the_reference():
    known = {"QUEUES", "SCHEDULES", *conf.SETTING_OPTIONS}

    assert set(table_of("reference/settings.md", "# Settings")) == known


def test_schedule_options_are_on_their_page():
    assert set(table_of("schedules.md", "## Options")) == set(ScheduleOptions.__annotations__)


def test_queue_options_are_in_the_reference():
    assert set(table_of("reference/settings.md", "## Options of a queue")) == set(
        conf.QUEUE_OPTIONS
    )


def test_queue_defaults_are_those_in_the_reference():
    documented = table_of("reference/settings.md", "## Options of a queue")
    default = QueueConfig()

    assert documented["ordering_mode"] == f'`"{default.ordering_mode}"`'
    assert documented["lock_duration"] == f"{default.lock_duration_ms // 1_000} s"
    assert documented["max_delivery_count"] == str(default.max_delivery_count)
    backoff = f"{default.backoff_base_ms // 1_000} s, {default.backoff_max_ms // 3_600_000} h"
    assert documented["backoff_base"] == documented["backoff_max"] == backoff
    assert documented["default_ttl"] == str(default.default_ttl_ms)
    assert documented["dead_letter_on_expire"] == str(default.dead_letter_on_expire)
    assert documented["dedup_window"] == str(default.dedup_window_ms)
    assert documented["retain_completed"] == str(default.retain_completed_ms)


def test_enqueue_options_are_in_the_guide():
    documented = table_of("guide.md", "## Enqueue")

    assert set(documented) == set(MessageOptions.__annotations__)


def test_diagram_has_every_state_and_no_other():
    diagram = (DOCS / "concepts" / "states.svg").read_text(encoding="utf-8")

    assert sorted(re.findall(r'class="name".*?>(\w+)<', diagram)) == sorted(State)
    assert set(table_of("concepts/model.md", "![")) == set(State)


def test_modules_with_statements_have_a_chapter():
    modules = {name.partition(".")[0] for name in statements()}
    chapters = {
        page.stem
        for page in (DOCS / "internals" / "store").glob("*.md")
        if any(block.language == f"{{statements}} {page.stem}" for block in blocks_of(page))
    }

    assert chapters == modules


def test_verbs_and_their_objects_are_in_the_glossary():
    text = (DOCS / "glossary.md").read_text(encoding="utf-8")
    words = set(re.findall(r"^([a-z][a-z ]+)$", text, re.MULTILINE))

    assert words >= VERBS | {"lease", "lock token", "delivery count", "dead letter", "reaper"}
