"""A request to shut down; its signals are tested with real workers."""

import signal
from types import SimpleNamespace

import pytest

from django_mqlite.worker import shutdown as module
from django_mqlite.worker.shutdown import Shutdown, shutdown_on_signals
from tests.support.waiting import wait_until


def test_shutdown_request_wakes_every_loop():
    shutdown, calls = Shutdown(), []
    shutdown.on_request(lambda: calls.append("first"))
    shutdown.on_request(lambda: calls.append("second"))
    assert not shutdown.requested
    assert not shutdown.wait(0)

    shutdown.request()

    assert shutdown.requested
    assert shutdown.wait(60)
    assert calls == ["first", "second"]


@pytest.mark.parametrize(("gap", "codes"), [(0, []), (0.09, []), (0.11, [143])])
def test_signals_at_the_same_time_count_as_one(monkeypatch, gap, codes):
    now, shutdown, exits = [0.0], Shutdown(), []
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(shutdown, "exit_now", exits.append)

    with shutdown_on_signals(shutdown):
        signal.raise_signal(signal.SIGTERM)
        wait_until(lambda: shutdown.requested, "the first signal")
        now[0] += gap
        signal.raise_signal(signal.SIGTERM)

    assert exits == codes
