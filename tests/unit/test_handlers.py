"""Which function handles which queue."""

import pytest
from django.core.exceptions import ImproperlyConfigured

from django_mqlite import handler, handlers


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
