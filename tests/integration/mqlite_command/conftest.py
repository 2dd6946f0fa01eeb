"""Whether somebody sits at the terminal."""

import io

import pytest

from .calls import Terminal


@pytest.fixture(autouse=True)
def nobody(monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO(""))


@pytest.fixture
def typing(monkeypatch, nobody):
    """Somebody does, and types this."""

    def types(text):
        monkeypatch.setattr("sys.stdin", Terminal(text))

    return types
