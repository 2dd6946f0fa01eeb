"""What must be true before a worker starts."""

import pytest

from django_mqlite.handlers import Handler
from django_mqlite.worker.watchdogs import NotReady, served_queues


@pytest.fixture
def handlers(make_queue):
    """Handlers for three queues that exist; `nobody` exists and has none."""
    for name in ("a", "b", "c", "nobody"):
        make_queue(name)
    return {name: Handler(queue=name, function=print) for name in ("c", "a", "b")}


def served(handlers, *wanted, without=()):
    return served_queues("default", handlers, wanted, without)


def test_by_default_every_queue_with_a_handler_is_served(handlers):
    assert served(handlers) == ("a", "b", "c")


def test_named_queues_are_served_in_the_order_given(handlers):
    assert served(handlers, "c", "a") == ("c", "a")


def test_a_star_stands_for_the_rest(handlers):
    assert served(handlers, "*") == ("a", "b", "c")
    assert served(handlers, "c", "*") == ("c", "a", "b")
    assert served(handlers, "*", "a", without=["b"]) == ("c", "a")


def test_excluded_queues_are_left_out(handlers):
    assert served(handlers, without=["b"]) == ("a", "c")
    assert served(handlers, "c", "b", without=["b"]) == ("c",)


@pytest.mark.parametrize(
    ("wanted", "without"), [(["jbos"], []), ([], ["jbos"])], ids=["wanted", "excluded"]
)
def test_an_unknown_queue_is_refused_with_its_likely_name(handlers, make_queue, wanted, without):
    make_queue("jobs")

    with pytest.raises(NotReady, match=r"no queue 'jbos'.*Did you mean 'jobs'"):
        served(handlers, *wanted, without=without)


def test_a_queue_without_a_handler_is_refused_with_the_way_out(handlers):
    with pytest.raises(NotReady, match=r"'nobody' has no handler.*@handler\('nobody'\)"):
        served(handlers, "a", "nobody")


def test_a_handler_for_a_queue_that_is_not_there_is_refused(handlers):
    handlers["ghost"] = Handler(queue="ghost", function=print)

    with pytest.raises(NotReady, match="no queue 'ghost'"):
        served(handlers)
    assert served(handlers, "a") == ("a",)


@pytest.mark.parametrize("without", [[], ["a", "b", "c"]], ids=["no handlers", "all excluded"])
def test_nothing_to_serve_is_refused(handlers, without):
    found = handlers if without else {}

    with pytest.raises(NotReady, match="no queue to serve"):
        served(found, without=without)
