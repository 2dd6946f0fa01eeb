"""What a screen reader needs: labels of fields and buttons, captions, texts for pictures."""

from dataclasses import dataclass
from html.parser import HTMLParser

import pytest
from django.urls import reverse

from django_mqlite.models import Message, Subscription
from tests.support.verbs import dead_letter, enqueue_and_claim

from .conftest import VIEW
from .pages import DEAD_LETTERS, MESSAGES, QUEUES, act, page_of, text_of

FIELDS = {"input", "select", "textarea"}
VOID = {"input", "meta", "link", "br", "img", "path"}


@dataclass(kw_only=True)
class Element:
    tag: str
    attributes: dict[str, str | None]
    within: list[str]
    text: str = ""


class Outline(HTMLParser):
    """The elements of a page, each with what it lies in and the text within it."""

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
        """What is filled in."""
        hidden = {"hidden", "submit"}
        return [each for each in self.of(*FIELDS) if each.attributes.get("type") not in hidden]

    @property
    def nameless_fields(self) -> list[Element]:
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
        return [each.attributes["id"] for each in self.elements if "id" in each.attributes]


def pages(client) -> dict[str, str]:
    letter, held = dead_letter("jobs"), enqueue_and_claim("jobs", 1)
    scheduled = Message.objects.enqueue("jobs", 1, delay=60)
    Subscription.objects.subscribe("orders", "stock")
    urls = {
        "overview": QUEUES,
        "queue": reverse("admin:django_mqlite_queue_change", args=["jobs"]),
        "messages": MESSAGES,
        "dead letters": DEAD_LETTERS,
        "dead": page_of(letter),
        "locked": page_of(held),
        "scheduled": page_of(scheduled),
        "subscriptions": reverse("admin:django_mqlite_subscription_changelist"),
        "subscription": reverse("admin:django_mqlite_subscription_change", args=["stock"]),
    }
    found = {name: text_of(client.get(url)) for name, url in urls.items()}
    found["redrive"] = text_of(act(client, DEAD_LETTERS, "redrive", letter))
    return found


@pytest.fixture
def outlines(make_staff, queue):
    client = make_staff(
        *VIEW,
        *("view_subscription", "change_subscription", "add_subscription", "change_queue"),
        *("redrive_message", "purge_message", "release_message", "pause_queue"),
        *("change_message", "delete_message"),
    )
    return {name: Outline(page) for name, page in pages(client).items()}


def test_form_fields_have_labels(outlines):
    assert outlines["redrive"].fields
    assert {name: o.nameless_fields for name, o in outlines.items() if o.nameless_fields} == {}


def test_buttons_have_texts(outlines):
    assert outlines["dead"].of("button")
    assert {
        name
        for name, outline in outlines.items()
        for button in outline.of("button")
        if not (button.text or button.attributes.get("aria-label"))
    } == set()


def test_overview_tables_have_captions_and_charts_have_titles(outlines):
    overview = outlines["overview"]

    pictures = [each for each in overview.of("svg") if each.attributes.get("role") == "img"]
    titles = [each for each in overview.of("title") if "svg" in each.within]
    assert len(pictures) == len([title for title in titles if title.text]) == 2
    assert len(overview.of("table")) == len(overview.of("caption")) >= 2


def test_ids_are_unique_within_a_page(outlines):
    assert {n for n, o in outlines.items() if len(o.ids) != len(set(o.ids))} == set()
