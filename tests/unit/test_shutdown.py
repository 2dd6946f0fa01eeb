"""A request to shut down; its signals are tested with real workers."""

from django_mqlite.worker.shutdown import Shutdown


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
