"""The reference is whole: every public name is in it, and what is in it is public on purpose."""

import re
from inspect import getattr_static
from types import ModuleType

import pytest
from django.apps import apps

import django_mqlite
from django_mqlite import conf, managers, models, signals, sqlite3, task_backend, testing
from django_mqlite.message import MessageOptions
from django_mqlite.types import QueueConfig, State
from tests.support.pages import blocks_of
from tests.support.source import ROOT
from tests.support.statements import statements

DOCS = ROOT / "docs"
REFERENCE = DOCS / "reference"
DIRECTIVE = re.compile(r"\.\. (auto\w+|currentmodule):: ([\w.]+)(?:\(\))?\n((?:   :.*\n)*)")


def documented() -> dict[str, set[str]]:
    """Every name that the reference shows, by its full path, with the members that are shown."""
    found: dict[str, set[str]] = {}
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
                        found[path] = set(re.findall(r"\w+", members[1])) if members else set()
    return found


def fine_print() -> str:
    return (REFERENCE / "api.md").read_text(encoding="utf-8").partition("## Without a promise")[2]


def without_promise() -> dict[str, set[str]]:
    items = re.findall(r"^- `(\w+)`: (.*)$", fine_print(), re.MULTILINE)
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
    """What the class and those of its bases that are ours define, without Django's parts."""
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
def test_what_a_package_offers_is_in_the_reference_and_nothing_else(package):
    inside = f"{package.__name__}."
    shown = {path.removeprefix(inside) for path in NAMES if path.startswith(inside)}

    assert {name for name in shown if "." not in name} == set(package.__all__)


def test_the_package_offers_nothing_by_accident():
    public = {
        name
        for name, value in vars(django_mqlite).items()
        if not name.startswith("_") and not isinstance(value, ModuleType)
    }

    assert public == set(django_mqlite.__all__)


@pytest.mark.parametrize("name", CLASSES)
def test_a_member_is_in_the_reference_or_is_said_to_be_without_a_promise(name):
    (shown,) = [members for path, members in NAMES.items() if path.endswith(f".{name}")]

    assert own_members(CLASSES[name]) == shown | without_promise().get(name, set())


def test_every_signal_is_in_the_reference():
    sent = {name for name, value in vars(signals).items() if isinstance(value, signals.Signal)}

    assert {path for path in NAMES if path.startswith("django_mqlite.signals.")} == {
        f"django_mqlite.signals.{name}" for name in sent
    }


def test_every_model_is_in_the_reference_or_is_said_to_be_without_a_promise():
    defined = {model.__name__ for model in apps.get_app_config("django_mqlite").get_models()}
    shown = {path.rpartition(".")[2] for path in NAMES if path.startswith("django_mqlite.models.")}

    assert shown == {"DeadLetter", "Message", "Queue", "Subscription"}
    assert defined - shown <= set(re.findall(r"`(\w+)`", fine_print()))


def table_of(page: str, heading: str) -> dict[str, str]:
    """First and last column of the rows under the heading, each name of a row by itself."""
    text = (DOCS / page).read_text(encoding="utf-8").partition(heading)[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (`.*?) \|(?:.*\|)? (.*?) \|$", text, re.MULTILINE)
    return {name: default for cell, default in rows for name in re.findall(r"`([\w-]+)`", cell)}


def test_every_setting_is_in_the_reference():
    known = {"QUEUES", *conf.SETTING_OPTIONS}

    assert set(table_of("reference/settings.md", "# Settings")) == known


def test_every_option_of_a_queue_is_in_the_reference():
    assert set(table_of("reference/settings.md", "## Options of a queue")) == set(
        conf.QUEUE_OPTIONS
    )


def test_the_defaults_of_a_queue_are_the_ones_that_the_reference_says():
    said = table_of("reference/settings.md", "## Options of a queue")
    default = QueueConfig()

    assert said["ordering_mode"] == f'`"{default.ordering_mode}"`'
    assert said["lock_duration"] == f"{default.lock_duration_ms // 1_000} s"
    assert said["max_delivery_count"] == str(default.max_delivery_count)
    backoff = f"{default.backoff_base_ms // 1_000} s, {default.backoff_max_ms // 3_600_000} h"
    assert said["backoff_base"] == said["backoff_max"] == backoff
    assert said["default_ttl"] == str(default.default_ttl_ms)
    assert said["dead_letter_on_expire"] == str(default.dead_letter_on_expire)
    assert said["dedup_window"] == str(default.dedup_window_ms)
    assert said["retain_completed"] == str(default.retain_completed_ms)


def test_every_option_of_enqueue_is_in_the_guide():
    said = table_of("guide.md", "## Enqueue")

    assert set(said) == set(MessageOptions.__annotations__)


def test_the_diagram_has_every_state_and_no_other():
    drawn = (DOCS / "concepts" / "states.svg").read_text(encoding="utf-8")

    assert sorted(re.findall(r'class="name".*?>(\w+)<', drawn)) == sorted(State)
    assert set(table_of("concepts/model.md", "![")) == set(State)


def test_every_module_with_statements_has_a_chapter():
    modules = {name.partition(".")[0] for name in statements()}
    chapters = {
        page.stem
        for page in (DOCS / "internals" / "store").glob("*.md")
        if any(block.language == f"{{statements}} {page.stem}" for block in blocks_of(page))
    }

    assert chapters == modules


def test_every_verb_and_what_it_acts_on_is_in_the_glossary():
    text = (DOCS / "glossary.md").read_text(encoding="utf-8")
    words = set(re.findall(r"^([a-z][a-z ]+)$", text, re.MULTILINE))

    assert words >= VERBS | {"lease", "lock token", "delivery count", "dead letter", "reaper"}
