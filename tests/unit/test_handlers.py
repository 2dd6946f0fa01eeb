"""Which function handles which queue."""

import importlib
import re
import sys
from functools import partial
from types import SimpleNamespace

import pytest
from django.core.exceptions import ImproperlyConfigured

from django_mqlite import handler, handlers
from django_mqlite.exceptions import HandlersNotImported, NoHandler


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

    with pytest.raises(
        ImproperlyConfigured,
        match=r"two handlers, .*first \(.*test_handlers\.py, line \d+\) and .*second \(",
    ):

        @handler("orders")
        def second(message): ...

    assert handlers.get_handlers()["orders"].function is first


DECORATORS = """
from functools import partial, wraps
from django_mqlite import handler

def plain(function):
    def inner(message):
        return function(message)
    return inner

def in_async(function):
    async def inner(message):
        return function(message)
    return inner

def named(function):
    return wraps(function)(lambda message: function(message))

def registered(function):
    return handler("orders")(plain(function))

class Object:
    def __init__(self, function):
        self.function = function
    def __call__(self, message):
        return self.function(message)
"""


@pytest.fixture
def write_module(tmp_path, monkeypatch):
    """Write a module that can be imported until the test ends; the number of its lines."""
    monkeypatch.syspath_prepend(tmp_path)
    written = []

    def write(name, text):
        written.append(name)
        (tmp_path / f"{name}.py").write_text(text)
        importlib.invalidate_caches()

    yield write
    for name in written:
        sys.modules.pop(name, None)


@pytest.fixture
def decorators(write_module):
    write_module("some_decorators", DECORATORS)


@pytest.mark.usefixtures("decorators")
@pytest.mark.parametrize("decorator", ["plain", "in_async", "Object", "partial"])
@pytest.mark.parametrize("names", [("first", "second"), ("same", "same")], ids="-".join)
def test_two_handlers_behind_one_decorator_are_two_and_both_are_named(
    write_module, decorator, names
):
    text = "from some_decorators import *\n"
    for name in names:
        text += f"@handler('orders')\n@{decorator}\ndef {name}(message): ...\n"
    write_module("two_handlers", text)

    with pytest.raises(ImproperlyConfigured) as caught:
        importlib.import_module("two_handlers")

    places = re.findall(r"two_handlers\.py, line (\d+)", str(caught.value))
    assert len(set(places)) == 2


@pytest.mark.usefixtures("decorators")
@pytest.mark.parametrize("decorator", ["plain", "in_async", "Object", "partial"])
def test_handlers_of_two_modules_behind_one_decorator_are_two(write_module, decorator):
    text = f"from some_decorators import *\n@handler('orders')\n@{decorator}\ndef f(message): ...\n"
    for name in ("one_module", "another_module"):
        write_module(name, text)
    importlib.import_module("one_module")

    with pytest.raises(ImproperlyConfigured, match=r"one_module\.py.* and .*another_module\.py"):
        importlib.import_module("another_module")


@pytest.mark.usefixtures("decorators")
@pytest.mark.parametrize(
    "lines",
    [
        ["@handler('orders')", "def f(message): ...", "@handler('orders')", "def f(message): ..."],
        ["@registered", "def f(message): ...", "@registered", "def g(message): ..."],
        ["for each in range(2):", "    handler('orders')(lambda message: each)"],
    ],
    ids=["same name", "decorator that registers", "loop"],
)
def test_a_second_handler_is_refused_however_it_is_registered(write_module, lines):
    write_module("two_handlers", "\n".join(["from some_decorators import *", *lines]))

    with pytest.raises(ImproperlyConfigured, match=r"two handlers, .*two_handlers\.py, line"):
        importlib.import_module("two_handlers")


@pytest.mark.usefixtures("decorators")
@pytest.mark.parametrize("decorator", ["plain", "in_async", "named", "Object", "partial"])
@pytest.mark.parametrize("again", ["reload", "import"])
def test_a_handler_that_is_imported_again_takes_its_own_place(write_module, decorator, again):
    text = f"from some_decorators import *\n@handler('orders')\n@{decorator}\ndef f(message): ...\n"
    write_module("one_handler", text)
    module = importlib.import_module("one_handler")
    first = handlers.get_handlers()["orders"]

    write_module("one_handler", f"# edited\n{text}")
    if again == "reload":
        importlib.reload(module)
    else:
        del sys.modules["one_handler"]
        importlib.import_module("one_handler")

    second = handlers.get_handlers()["orders"]
    assert second.function is sys.modules["one_handler"].f
    assert second.function is not first.function


def test_the_same_function_may_be_registered_again():
    def on_order(message): ...

    handler("orders")(on_order)
    handler("orders", atomic=True)(on_order)

    assert handlers.get_handlers()["orders"].atomic


# Which modules are imported


@pytest.fixture
def imports(write_module, settings):
    """The handlers after a module with this text was named in the setting."""

    def get(text):
        write_module("orders_of_the_shop", text)
        settings.MQLITE = {"HANDLERS": ["orders_of_the_shop"]}
        return handlers.get_handlers()

    return get


def test_the_modules_that_the_setting_names_are_imported(imports):
    found = imports("from django_mqlite import handler\nhandler('orders')(print)\n")

    assert found["orders"].function is print


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "import os\nimport no_such_module\n",
            r"ModuleNotFoundError at .*shop\.py, line 2: No mod",
        ),
        ("\n\n1 / 0\n", r"ZeroDivisionError at .*shop\.py, line 3: division"),
        ("def f(:\n", r"SyntaxError at .*shop\.py, line 1: "),
        ("\nraise SystemExit(1)\n", r"SystemExit at .*shop\.py, line 2: 1"),
        (
            "from django_mqlite import handler\nhandler('a')(print)\nhandler('a')(repr)\n",
            r"ImproperlyConfigured at .*shop\.py, line 3: Queue 'a' has two handlers",
        ),
    ],
    ids=["missing module", "error", "syntax", "script", "two handlers"],
)
def test_a_module_that_fails_is_named_with_file_and_line(imports, text, said):
    for _ in range(2):  # what it registered before it failed does not hide the reason
        with pytest.raises(HandlersNotImported, match=rf"'orders_of_the_shop' cannot.*{said}"):
            imports(text)


def test_a_module_that_is_not_there_is_named(settings):
    settings.MQLITE = {"HANDLERS": ["shop.handlrs"]}

    with pytest.raises(HandlersNotImported, match=r"'shop\.handlrs' cannot be imported"):
        handlers.get_handlers()


def test_a_decorator_without_its_queue_is_refused():
    with pytest.raises(ImproperlyConfigured, match=r"@handler\('queue-name'\)"):

        @handler
        def on_order(message): ...


def sync_generator(message):
    yield


async def async_generator(message):
    yield


class OfAClass:
    def __call__(self, message):
        yield


@pytest.mark.parametrize(
    "function",
    [sync_generator, async_generator, OfAClass(), partial(sync_generator)],
    ids=["sync", "async", "object", "partial"],
)
def test_a_generator_is_refused_because_its_body_would_never_run(function):
    with pytest.raises(ImproperlyConfigured, match="generator function: its body would never run"):
        handler("orders")(function)


# Messages of a kind of their own


@pytest.fixture
def kind(monkeypatch):
    """Messages of the type text/x-letter, in the queue `letters`; `discovered` counts."""
    discovered = []
    letter = handlers.Handler(queue="letters", function=print)
    made = handlers.MessageKind(
        content_type="text/x-letter",
        handler_of=lambda message: letter,
        queues=lambda: ["letters"],
        discover=lambda: discovered.append(True),
    )
    monkeypatch.setattr(handlers, "_kinds", {})
    handlers.register_kind(made)
    return SimpleNamespace(handler=letter, discovered=discovered)


def message(content_type, queue="orders"):
    return SimpleNamespace(queue=queue, content_type=content_type, read_error=None)


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
