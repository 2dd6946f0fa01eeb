"""The registry of handlers."""

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


def test_handler_is_registered_for_its_queue():
    def on_order(message):
        return message

    assert handler("orders", atomic=True)(on_order) is on_order

    registered = handlers.get_handlers()["orders"]
    assert (registered.queue, registered.function, registered.atomic) == ("orders", on_order, True)
    assert registered.path.endswith("on_order")


def test_function_may_handle_several_queues():
    @handler("a")
    @handler("b")
    @handler("b", atomic=True)
    def both(message): ...

    registered = handlers.get_handlers()
    assert [(name, registered[name].atomic) for name in registered] == [("b", False), ("a", False)]


@pytest.mark.parametrize("atomic", [1, 0, None, "yes"])
def test_atomic_that_is_no_bool_is_refused(atomic):
    with pytest.raises(TypeError, match="atomic must be True or False"):
        handler("orders", atomic=atomic)


def test_second_handler_is_refused_and_the_first_is_kept():
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
    """Write modules that can be imported until the test ends."""
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


def decorated(decorator, name="f"):
    return f"@handler('orders')\n@{decorator}\ndef {name}(message): ...\n"


PAIRS = [
    *(
        (decorated(decorator), decorated(decorator, name))
        for decorator in ("plain", "in_async", "Object", "partial")
        for name in ("f", "g")
    ),
    ("@handler('orders')\ndef f(message): ...\n", "@handler('orders')\ndef f(message): ...\n"),
    ("@registered\ndef f(message): ...\n", "@registered\ndef g(message): ...\n"),
]


@pytest.mark.usefixtures("decorators")
@pytest.mark.parametrize(("first", "second"), PAIRS, ids=range(len(PAIRS)))
@pytest.mark.parametrize("other", ["orders_a", "orders_b"], ids=["same module", "other module"])
def test_second_handler_is_refused_with_both_places(write_module, first, second, other):
    texts = {"orders_a": "from some_decorators import *\n" + first}
    texts[other] = texts.get(other, "from some_decorators import *\n") + second
    for name, text in texts.items():
        write_module(name, text)

    with pytest.raises(ImproperlyConfigured, match="two handlers") as caught:
        for name in texts:
            importlib.import_module(name)

    assert len(set(re.findall(r"orders_[ab]\.py, line \d+", str(caught.value)))) == 2


def test_handlers_registered_in_a_loop_are_refused(write_module):
    loop = "for number in range(2):\n    handler('orders')(lambda message: number)\n"
    write_module("orders_a", "from django_mqlite import handler\n" + loop)

    with pytest.raises(ImproperlyConfigured, match=r"two handlers, .*orders_a\.py, line 3"):
        importlib.import_module("orders_a")


@pytest.mark.usefixtures("decorators")
@pytest.mark.parametrize("decorator", ["plain", "in_async", "named", "Object", "partial"])
@pytest.mark.parametrize("again", ["reload", "import"])
def test_handler_that_is_imported_again_replaces_itself(write_module, decorator, again):
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


# The modules that are imported


@pytest.fixture
def imports(write_module, settings):
    """Return the handlers of a module with this text, which the setting names."""

    def get(text):
        write_module("orders_of_the_shop", text)
        settings.MQLITE = {"HANDLERS": ["orders_of_the_shop"]}
        return handlers.get_handlers()

    return get


@pytest.mark.parametrize(
    ("text", "error"),
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
def test_module_that_fails_is_named_with_file_and_line(imports, text, error):
    for _ in range(2):  # handlers that it registered before it failed do not hide the reason
        with pytest.raises(HandlersNotImported, match=rf"'orders_of_the_shop' cannot.*{error}"):
            imports(text)


def test_module_of_the_setting_is_imported(imports):
    assert imports("from django_mqlite import handler\nhandler('orders')(print)\n")["orders"]


def test_missing_module_is_refused_by_name(settings):
    settings.MQLITE = {"HANDLERS": ["shop.handlrs"]}

    with pytest.raises(HandlersNotImported, match=r"'shop\.handlrs' cannot be imported"):
        handlers.get_handlers()


def test_decorator_without_a_queue_is_refused():
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
def test_generator_function_is_refused(function):
    with pytest.raises(ImproperlyConfigured, match="generator function: its body would never run"):
        handler("orders")(function)


# Kinds of messages, such as tasks


@pytest.fixture
def kind(monkeypatch):
    """Register a kind of message, text/x-letter in the queue `letters`; record discoveries."""
    discovered = []
    letter = handlers.Handler(queue="letters", function=print)
    made = handlers.MessageKind(
        content_type="text/x-letter",
        handler_of=lambda message: letter,
        queues=lambda: ["letters"],
        discover=lambda: discovered.append(True),
        prepare_call=lambda schedule: lambda using, properties: None,
    )
    monkeypatch.setattr(handlers, "_kinds", {})
    handlers.register_kind(made)
    return SimpleNamespace(handler=letter, discovered=discovered)


def message(content_type, queue="orders"):
    return SimpleNamespace(queue=queue, content_type=content_type, read_error=None)


def test_message_of_a_kind_is_handled_by_the_kind(kind):
    registered = {"orders": handlers.Handler(queue="orders", function=print)}

    for queue in ("orders", "nowhere"):
        assert handlers.handler_of(message("text/x-letter", queue), registered) is kind.handler
    for content_type in ("application/json", "", None):
        assert handlers.handler_of(message(content_type), registered) is registered["orders"]
    assert handlers.queues_of_kinds() == {"letters"}


def test_message_without_a_handler_raises_no_handler(kind):
    nothing = handlers.handler_of(message("application/json", "letters"), {})

    with pytest.raises(NoHandler, match=r"'letters' has no handler.*application/json"):
        nothing.function(message("application/json", "letters"))


def test_kind_is_discovered_with_the_handlers(kind):
    handlers.get_handlers()

    assert kind.discovered == [True]


@pytest.mark.rule("3.9")
def test_retry_options_of_a_handler_decide_its_outcomes():
    @handler("orders", retry_on=ConnectionError, give_up_on=(BrokenPipeError,), backoff=90)
    def on_order(message): ...

    retries = handlers.get_handlers()["orders"].retries
    assert retries.gives_up(ValueError())
    assert retries.gives_up(BrokenPipeError())
    assert not retries.gives_up(ConnectionResetError())
    assert 45_000 <= retries.delay_ms(1) <= 90_000


@pytest.mark.parametrize(
    "options", [{"retry_on": "ValueError"}, {"give_up_on": 7}, {"backoff": -1}], ids=str
)
def test_invalid_retry_option_of_a_handler_is_refused_by_name(options):
    (name,) = options
    with pytest.raises((TypeError, ValueError), match=name):
        handler("orders", **options)
