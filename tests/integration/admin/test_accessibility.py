"""Labels, captions and texts that a screen reader needs."""

from dataclasses import dataclass
from html.parser import HTMLParser

import pytest
from django.urls import reverse

from django_mqlite import timing
from django_mqlite.models import Subscription
from django_mqlite.verbs.workers import register
from tests.support.verbs import record, tallies

from .conftest import PERMISSIONS, VIEW
from .pages import DEAD_LETTERS, LISTS, MAKERS, QUEUES, act, page_of, text_of

QUEUE = reverse("admin:django_mqlite_queue_change", args=["jobs"])
FIELDS = {"input", "select", "textarea"}
VOID = {"input", "meta", "link", "br", "img", "path"}


@dataclass(kw_only=True)
class Element:
    tag: str
    attributes: dict[str, str | None]
    within: list[str]
    text: str = ""


class Outline(HTMLParser):
    """The elements of a page with their ancestors and their text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[Element] = []
        self.open: list[Element] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list) -> None:
        within = [element.tag for element in self.open]
        element = Element(tag=tag, attributes=dict(attrs), within=within)
        self.elements.append(element)
        if tag not in VOID:
            self.open.append(element)

    def handle_endtag(self, tag: str) -> None:
        while self.open and self.open.pop().tag != tag:
            pass

    def handle_data(self, data: str) -> None:
        for element in self.open:
            element.text += data.strip()

    def of(self, *tags: str) -> list[Element]:
        return [element for element in self.elements if element.tag in tags]

    @property
    def fields(self) -> list[Element]:
        """The fields that a user fills in."""
        hidden = {"hidden", "submit"}
        return [field for field in self.of(*FIELDS) if field.attributes.get("type") not in hidden]

    @property
    def unlabelled_fields(self) -> list[Element]:
        labelled = {label.attributes.get("for") for label in self.of("label")}
        return [
            field
            for field in self.fields
            if not field.attributes.get("aria-label")
            and "label" not in field.within
            and field.attributes.get("id") not in labelled - {None}
        ]

    @property
    def ids(self) -> list[str | None]:
        return [tag.attributes["id"] for tag in self.elements if "id" in tag.attributes]


@pytest.fixture
def outlines(make_staff, queue):
    """The pages by URL, with all permissions, and the confirmation of a redrive."""
    forms = ("change_subscription", "add_subscription", "change_queue")
    client = make_staff(*VIEW, *PERMISSIONS.values(), *forms)
    messages = {state: make() for state, make in MAKERS.items()}
    Subscription.objects.subscribe("orders", "stock")
    minute = timing.now_ms() // 60_000
    register("default", record(), tallies("jobs", (minute, 3, 1)))
    urls = [
        *LISTS,
        *map(page_of, messages.values()),
        QUEUE,
        reverse("admin:django_mqlite_subscription_changelist"),
        reverse("admin:django_mqlite_subscription_change", args=["stock"]),
    ]
    pages = {url: client.get(url) for url in urls}
    pages["redrive"] = act(client, DEAD_LETTERS, "redrive", messages["dead_lettered"])
    return {url: Outline(text_of(page)) for url, page in pages.items()}


def test_fields_and_buttons_have_labels_and_ids_are_unique(outlines):
    assert outlines["redrive"].fields
    assert sum(len(outline.of("button")) for outline in outlines.values()) > 5
    for url, outline in outlines.items():
        assert outline.unlabelled_fields == [], url
        for button in outline.of("button"):
            assert button.text or button.attributes.get("aria-label"), url
        assert sorted(outline.ids) == sorted(set(outline.ids)), url


def test_tables_have_captions_and_charts_have_titles(outlines):
    for url in (QUEUES, QUEUE):
        outline = outlines[url]
        charts = [svg for svg in outline.of("svg") if svg.attributes.get("role") == "img"]
        titles = [title for title in outline.of("title") if title.within[-1] == "svg"]
        assert len(charts) == len([title for title in titles if title.text]) >= 1
        assert len(outline.of("table")) == len(outline.of("caption")) >= 1
