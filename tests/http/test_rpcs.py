"""The RPCs, over real connections to each kind of server."""


def test_message_is_sent_received_and_completed(client):
    queue = client.queue()

    numbers = client.send(queue, b"first", b"second")
    received = client.receive(queue, max_messages=5)

    assert [message["seq_number"] for message in received] == numbers
    assert client.settle("Complete", queue, received[0]) == {"ok": True}
    assert client.settle("Abandon", queue, received[1]) == {"ok": True}
    assert client.numbers(queue) == [numbers[1]]
