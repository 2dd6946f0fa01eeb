"""The HTTP broker: programs that are not Django send and receive on the same queues.

It speaks the wire protocol of mqlite. `runbroker` serves it on its own port, `asgi.MqliteBroker`
inside an ASGI project, and `urls` inside a WSGI project. It needs the extra [http].
"""
