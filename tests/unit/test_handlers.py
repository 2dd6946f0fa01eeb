"""Which function handles which queue."""

from types import SimpleNamespace

import pytest
from django.core.exceptions import ImproperlyConfigured

from django_mqlite import handler, handlers
from django_mqlite.exceptions import NoHandler


@pytest.fixture(autouse=True)
def no_handlers(monkeypatch):
    monkeypatch.setattr(handlers, "_handlers", {})


def test_a_handler_is_found_by_its_queue_and_is_still_the_function():
    def on_order(message):
        return message

    assert handler("orders", atomic=True)(on_order) is on_order

    found = handlers.get_handlers()["orders"]
    assert (found.queue, found.function, found.atomic) == ("orders", on_order, True)
    assert found.path.endswith("on_order")


def test_one_function_may_handle_several_queues():
    @handler("a")
    @handler("b")
    def both(message): ...

    assert set(handlers.get_handlers()) == {"a", "b"}
    assert not handlers.get_handlers()["a"].atomic


def test_a_second_handler_for_a_queue_is_refused_with_both_paths():
    @handler("orders")
    def first(message): ...

    with pytest.raises(ImproperlyConfigured, match=r"two handlers, .*first and .*second"):

        @handler("orders")
        def second(message): ...

    assert handlers.get_handlers()["orders"].function is first


def test_the_same_function_imported_again_takes_its_own_place():
    def define():
        @handler("orders")
        def on_order(message): ...

        return on_order

    define()
    again = define()

    assert handlers.get_handlers()["orders"].function is again


def test_a_decorator_without_its_queue_is_refused():
    with pytest.raises(ImproperlyConfigured, match=r"@handler\('queue-name'\)"):

        @handler
        def on_order(message): ...


# Messages of a kind of their own


@pytest.fixture
def kind(monkeypatch):
    """Messages of the type text/x-letter, in the queue `letters`; `discovered` counts."""
    discovered = []
    letter = handlers.Handler(queue="letters", function=print)
    made = handlers.Kind(
        content_type="text/x-letter",
        handler_of=lambda message: letter,
        queues=lambda: ["letters"],
        discover=lambda: discovered.append(True),
    )
    monkeypatch.setattr(handlers, "_kinds", {})
    handlers.register_kind(made)
    return SimpleNamespace(handler=letter, discovered=discovered)


def message(content_type, queue="orders"):
    return SimpleNamespace(queue=queue, content_type=content_type)


def test_a_message_of_a_kind_is_handled_by_it_whatever_its_queue(kind):
    found = {"orders": handlers.Handler(queue="orders", function=print)}

    assert handlers.handler_of(message("text/x-letter"), found) is kind.handler
    assert handlers.handler_of(message("text/x-letter", "nowhere"), found) is kind.handler


@pytest.mark.parametrize("content_type", ["application/json", "", None])
def test_any_other_is_handled_by_its_queues_handler(kind, content_type):
    found = {"orders": handlers.Handler(queue="orders", function=print)}

    assert handlers.handler_of(message(content_type), found) is found["orders"]


def test_a_message_that_nothing_handles_says_so_when_it_is_run(kind):
    nothing = handlers.handler_of(message("application/json", "letters"), {})

    with pytest.raises(NoHandler, match=r"'letters' has no handler.*application/json"):
        nothing.function(message("application/json", "letters"))


def test_the_queues_of_kinds_are_known(kind):
    assert handlers.queues_of_kinds() == {"letters"}


def test_what_a_kind_needs_is_imported_with_the_handlers(kind):
    handlers.get_handlers()

    assert kind.discovered == [True]
