"""The admin in a browser: what an operator does when something is wrong."""

import re

import pytest

from tests.support.waiting import wait_until

from .site import QUEUE

# All tests share one server and one browser.
pytestmark = pytest.mark.xdist_group("browser")

OVERVIEW = "/admin/django_mqlite/queue/"
MESSAGES = "/admin/django_mqlite/message/"
DEAD_LETTERS = "/admin/django_mqlite/deadletter/"


@pytest.fixture
def boss(site, log_in) -> None:
    log_in(site.make_superuser())


@pytest.fixture
def clerk(site, log_in) -> None:
    """A user who may view everything and change nothing."""
    log_in(site.make_staff("view_queue", "view_message", "view_deadletter"))


def order_with_declined_card(page, site) -> None:
    """Place an order whose message becomes a dead letter after three deliveries."""
    page.goto(site.url)
    page.get_by_label("Card").select_option("declined")
    page.get_by_role("button", name="Order a teapot").click()


def row(page, name=QUEUE):
    return page.get_by_role("row").filter(has=page.get_by_role("link", name=name, exact=True))


def depth(page, text):
    return row(page).get_by_role("link", name=text, exact=True)


def messages_of(page) -> str:
    return page.locator(".messagelist").inner_text()


def test_overview_changes_while_a_worker_runs(page, site, boss, shoot):
    page.goto(site.url + OVERVIEW)
    assert "No worker is running" in page.inner_text("main")
    page.evaluate("window.untouched = true")

    site.busy_hour()
    for customer in ("3", "7"):
        site.dead_letters(2, group_id=f"customer-{customer}")
        site.enqueue(group_id=f"customer-{customer}", delay=3600)
    with site.worker() as worker:
        page.get_by_role("row").filter(has_text=str(worker.pid)).wait_for()
        depth(page, "4").wait_for()
        page.get_by_role("img", name="54 failed").wait_for()
        shoot("overview")

    assert page.evaluate("window.untouched")


@pytest.fixture
def refreshed(page, site, boss):
    """Open the overview under a clock that the test moves; return the URLs it requests."""
    requested: list[str] = []
    page.clock.install()
    page.goto(site.url + OVERVIEW)
    page.on("request", lambda request: requested.append(request.url))
    return requested


def pass_time(page, seconds: int) -> None:
    """Advance the clock; requests made meanwhile have been sent when this returns."""
    page.clock.run_for(seconds * 1000)
    page.evaluate("0")


def test_refresh_keeps_the_focus(page, site, refreshed):
    page.get_by_role("button", name=f"Pause {QUEUE}").focus()
    site.dead_letters(1)

    pass_time(page, 3)

    depth(page, "1").wait_for()
    focused = page.evaluate("document.activeElement.ariaLabel")
    assert focused == f"Pause {QUEUE}"


def test_refresh_can_be_stopped_and_resumed(page, site, refreshed):
    page.get_by_role("button", name="Stop refreshing").click()
    pass_time(page, 10)
    assert refreshed == []

    page.get_by_role("button", name="Resume refreshing").click()
    site.dead_letters(1)
    pass_time(page, 3)

    depth(page, "1").wait_for()


def test_hidden_page_requests_nothing(page, site, refreshed):
    def show(state: str) -> None:
        page.evaluate(
            """state => {
                Object.defineProperty(document, "visibilityState",
                                      {value: state, configurable: true});
                document.dispatchEvent(new Event("visibilitychange"));
            }""",
            state,
        )

    show("hidden")
    pass_time(page, 10)
    assert refreshed == []
    site.dead_letters(1)
    show("visible")

    depth(page, "1").wait_for()


def test_logged_out_user_sees_that_the_page_is_stale(page, site, refreshed):
    page.context.clear_cookies()

    pass_time(page, 3)

    page.get_by_role("status").get_by_text("Not up to date").wait_for()


def test_pages_work_under_a_strict_content_security_policy(page, site, boss):
    def strict(route):
        response = route.fetch()
        policy = {"content-security-policy": "default-src 'self'"}
        route.fulfill(response=response, headers={**response.headers, **policy})

    refused: list[str] = []
    page.on("console", lambda line: refused.append(line.text) if "ecurity" in line.text else None)
    (letter,) = site.dead_letters(1)

    page.route("**/*", strict)
    page.clock.install()
    page.goto(site.url + OVERVIEW)
    with page.expect_response("**/overview/"):
        page.clock.run_for(3_000)
    page.goto(f"{site.url}{DEAD_LETTERS}{letter.pk}/change/")
    page.get_by_role("button", name="Purge").click()
    page.get_by_text("Purge 1 dead letter?").wait_for()
    page.unroute_all(behavior="wait")

    assert refused == []


def test_dead_letter_is_read_and_redriven(page, site, boss, shoot):
    with site.worker():
        order_with_declined_card(page, site)
        letter = site.wait_dead()
        page.goto(site.url + OVERVIEW)
        depth(page, "1").click()
        page.get_by_role("link", name=str(letter.pk), exact=True).click()
        page.get_by_text("CardDeclined").first.click()
        assert "raise CardDeclined" in page.inner_text("main")
        assert "became a dead letter" in page.get_by_role("region", name="Why").inner_text()
        page.locator("details summary").first.click()
        shoot("message")

        site.correct_cards()
        page.get_by_role("button", name="Redrive").click()

        assert f"#{letter.pk} of {QUEUE} was redriven." in messages_of(page)
        wait_until(lambda: site.state(letter) == "completed", "the redriven message to be done")


def test_all_matching_dead_letters_are_redriven_when_confirmed(page, site, boss, shoot):
    site.dead_letters(3, group_id="customer-7", subject="order.placed")
    (other,) = site.dead_letters(1, group_id="customer-8", subject="order.paid")
    page.goto(site.url + DEAD_LETTERS)
    shoot("dead-letters")

    page.locator(".mqlite-filters > summary").click()
    page.get_by_role("textbox", name="Group").fill("customer-7")
    page.get_by_role("textbox", name="Group").press("Enter")
    page.get_by_role("button", name="Redrive all matching").click()
    assert "Redrive 3 dead letters?" in page.inner_text("main")
    assert site.count("dead_lettered") == 4
    page.get_by_role("button", name="Redrive").click()

    assert "3 dead letters redriven." in messages_of(page)
    assert (site.count("active"), site.state(other)) == (3, "dead_lettered")


def test_long_redrive_shows_progress_and_continues(page, site, boss):
    site.many_dead_letters(12_000)
    page.goto(f"{site.url}{DEAD_LETTERS}?queue={QUEUE}")

    page.get_by_role("button", name="Redrive all matching").click()
    page.get_by_label("Messages per second").fill("1000000")
    page.get_by_role("button", name="Redrive").click()
    done = page.get_by_text("12000 dead letters redriven.")
    continue_button = page.get_by_role("button", name="Continue")
    done.or_(continue_button).wait_for()
    while continue_button.is_visible():
        assert "left." in page.inner_text("main")
        continue_button.click()
        done.or_(continue_button).wait_for()

    done.wait_for()
    assert site.count("dead_lettered") == 0


def test_purge_is_confirmed_first(page, site, boss):
    site.dead_letters(2)
    page.goto(site.url + DEAD_LETTERS)

    page.get_by_role("checkbox").first.check()
    page.get_by_label("Action:").select_option(label="Purge selected dead letters")
    page.get_by_role("button", name="Run").or_(page.get_by_role("button", name="Go")).click()
    assert "Purge 2 dead letters?" in page.inner_text("main")
    assert site.count("dead_lettered") == 2
    page.get_by_role("button", name="Purge").click()

    assert "2 dead letters purged." in messages_of(page)
    assert site.count("dead_lettered") == 0


def test_queue_is_paused_and_resumed(page, site, boss):
    page.goto(site.url + OVERVIEW)

    page.get_by_role("button", name=f"Pause {QUEUE}").click()
    assert f"Queue {QUEUE} paused." in messages_of(page)
    message = site.enqueue()
    page.goto(f"{site.url}{MESSAGES}{message.pk}/change/")
    assert "is paused" in page.get_by_role("region", name="Why").inner_text()
    page.goto(site.url + OVERVIEW)
    page.get_by_role("button", name=f"Resume {QUEUE}").click()

    assert f"Queue {QUEUE} resumed." in messages_of(page)


def test_view_only_staff_can_change_nothing(page, site, clerk):
    (letter,) = site.dead_letters(1)
    addresses = [OVERVIEW, DEAD_LETTERS, f"{DEAD_LETTERS}{letter.pk}/change/"]
    wordings = re.compile("Redrive|Purge|Pause|Resume|Release|Cancel|Run now|Save|Delete")

    for address in addresses:
        page.goto(site.url + address)
        assert QUEUE in page.inner_text("main")
        assert page.get_by_role("button", name=wordings).count() == 0


def test_overview_fits_a_small_laptop_without_scrolling(page, site, boss):
    site.busy_hour()
    page.set_viewport_size({"width": 1280, "height": 800})

    page.goto(site.url + OVERVIEW)

    box = "document.getElementById('mqlite-queues-box')"
    assert page.evaluate(f"{box}.scrollWidth - {box}.clientWidth") <= 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_phone_shows_pages_without_horizontal_scrolling(page, site, boss, scheme):
    (letter,) = site.dead_letters(1)
    page.emulate_media(color_scheme=scheme)
    page.set_viewport_size({"width": 375, "height": 740})

    for address in (OVERVIEW, DEAD_LETTERS, f"{DEAD_LETTERS}{letter.pk}/change/"):
        page.goto(site.url + address)
        assert page.evaluate("document.documentElement.scrollWidth") <= 375, address


@pytest.fixture
def messages_of_all_kinds(site):
    """Messages of every state, with long names and errors."""
    (letter,) = site.dead_letters(1, subject="order.placed." * 8)
    retrying = site.enqueue(group_id="retrying")
    claimed = site.claim(worker="a-worker-with-a-long-name.example.com:4711:worker-1")
    claimed.abandon(delay=3600, error=ConnectionRefusedError("refused by smtp.example.com " * 9))
    site.enqueue(group_id="customer-8")
    behind = site.enqueue(group_id="customer-8")
    site.claim(worker="another-worker-with-a-long-name.example.com:4711").set_progress(0.4, "page")
    return {"letter": letter, "retrying": retrying, "behind": behind}


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_lists_and_pages_show_everything_at_each_width(
    page, site, boss, messages_of_all_kinds, width, scheme
):
    page.emulate_media(color_scheme=scheme)
    page.set_viewport_size({"width": width, "height": 844})
    states = ("", "active", "locked", "scheduled", "deferred", "completed", "dead_lettered")
    pages = [f"{MESSAGES}{message.pk}/change/" for message in messages_of_all_kinds.values()]

    for address in (DEAD_LETTERS, *(f"{MESSAGES}?state={state}" for state in states), *pages):
        page.goto(site.url + address)
        assert page.evaluate("document.documentElement.scrollWidth") <= width, address
        results = "document.querySelector('.results')"
        cut = page.evaluate(f"{results} ? {results}.scrollWidth - {results}.clientWidth : 0")
        assert cut <= 0, address


def test_phone_shows_cards_with_labels_and_filters_at_the_top(page, site, boss):
    site.enqueue(delay=3600, subject="order.placed")
    page.set_viewport_size({"width": 390, "height": 844})

    page.goto(f"{site.url}{MESSAGES}?state=scheduled")

    filters = page.locator(".mqlite-filters > summary")
    assert filters.bounding_box()["y"] < 500
    assert not page.get_by_role("textbox", name="Group").is_visible()
    filters.click()
    page.get_by_role("textbox", name="Group").wait_for()
    labels = page.locator("#result_list td").evaluate_all(
        "cells => cells.map(c => c.dataset.label)"
    )
    assert {"Subject", "Due", "Last error"} <= set(labels)


def test_message_page_begins_with_the_failures_and_the_body(
    page, site, boss, messages_of_all_kinds
):
    page.goto(f"{site.url}{MESSAGES}{messages_of_all_kinds['retrying'].pk}/change/")

    headings = page.locator("fieldset h2").all_inner_texts()
    assert headings[:2] == ["Failed deliveries", "Content"]
    assert page.locator("fieldset").first.bounding_box()["y"] < 500


def test_dead_letter_is_redriven_with_an_edited_body(page, site, boss):
    (letter,) = site.dead_letters(1)
    page.goto(f"{site.url}{DEAD_LETTERS}{letter.pk}/change/")

    page.get_by_role("link", name="Redrive with an edited body").click()
    page.get_by_label("Body").fill('{"order": 1}')
    page.get_by_role("button", name="Redrive").click()

    assert f"#{letter.pk} was redriven with an edited body" in messages_of(page)
    assert (site.state(letter), site.count("active")) == ("gone", 1)


def test_message_is_enqueued_from_a_form(page, site, boss):
    page.goto(site.url + MESSAGES)

    page.get_by_role("link", name="Enqueue a message").click()
    page.get_by_label("Queue or topic").select_option(label=QUEUE)
    page.get_by_label("Body").fill("{")
    page.get_by_label("Group id").fill("customer-7")
    page.get_by_role("button", name="Enqueue").click()
    page.get_by_text("This is not valid JSON").wait_for()
    page.get_by_label("Body").fill('{"order": 1}')
    page.get_by_role("button", name="Enqueue").click()

    assert "Enqueued #" in messages_of(page)
    assert site.count("active") == 1


def test_purge_works_with_the_keyboard_alone(page, site, boss):
    (letter,) = site.dead_letters(1)
    page.goto(f"{site.url}{DEAD_LETTERS}{letter.pk}/change/")

    page.get_by_role("button", name="Redrive").focus()
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.get_by_text("Purge 1 dead letter?").wait_for()
    page.get_by_role("button", name="Purge").focus()
    page.keyboard.press("Space")

    page.get_by_text(f"#{letter.pk} of {QUEUE} was purged.").wait_for()
    assert site.state(letter) == "gone"
