"""The wish to stop."""

from django_mqlite.worker.shutdown import Shutdown


def test_nothing_is_asked_for_in_the_beginning():
    stop = Shutdown()

    assert not stop.requested
    assert not stop.wait(0)


def test_a_request_is_seen_by_everyone_and_ends_every_rest():
    stop = Shutdown()
    woken = []
    stop.on_request(lambda: woken.append("first"))
    stop.on_request(lambda: woken.append("second"))

    stop.request()

    assert stop.requested
    assert stop.wait(60)
    assert woken == ["first", "second"]


def test_asking_twice_changes_nothing():
    stop = Shutdown()

    stop.request()
    stop.request()

    assert stop.requested
