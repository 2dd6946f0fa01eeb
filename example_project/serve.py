"""Run the shop and a worker to try out: `python -m example_project.serve [--port N]`."""

import argparse
import os
import secrets
import socket
import sys
from threading import Event

import django
from django.contrib.auth import get_user_model
from django.core.management import call_command
from django.db import connection

from .processes import DemoError, Processes, interrupt_on_signals

INSTRUCTIONS = """
  The shop   {url}
  The admin  {url}admin/   user: {user}   password: {password}

  1. In the shop, order a teapot and reload the page: the worker has charged the card.
  2. Order a unicorn. It is sold out: neither the order nor its message is stored.
  3. Order a teapot with a declined card. After three deliveries its message is a dead letter:
     {url}admin/django_mqlite/deadletter/
  4. Correct the card:      {url}admin/shop/order/
     and redrive the message: select it among the dead letters, choose "Redrive", confirm.
  5. Overview of all queues: {url}admin/django_mqlite/queue/

  Ctrl-C stops the shop and the worker. The database remains: {database}
"""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m example_project.serve", description=__doc__)
    parser.add_argument("--port", type=int, default=8000, help="port of the shop (8000)")
    port = parser.parse_args().port
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "example_project.settings")
    django.setup()
    with interrupt_on_signals():
        try:
            serve(port)
        except DemoError as error:
            print(error, file=sys.stderr)
            return 1
        except KeyboardInterrupt:
            print("\nThe shop has stopped.")
    return 0


def serve(port: int) -> None:
    """Run until interrupted; raise DemoError if the shop or the worker ends."""
    check_free(port)
    call_command("migrate", verbosity=0)
    user, password = admin_login()
    with Processes() as processes:
        processes.start("shop", "example_project.web", "--port", str(port))
        processes.start("worker", "example_project.manage", "runworker")
        processes.wait_until(lambda: is_listening(port), what="the shop to open")
        print(
            INSTRUCTIONS.format(
                url=f"http://127.0.0.1:{port}/",
                user=user,
                password=password,
                database=connection.settings_dict["NAME"],
            ),
            flush=True,
        )
        connection.close()
        while True:
            processes.check()
            Event().wait(1)


def check_free(port: int) -> None:
    try:
        socket.create_server(("127.0.0.1", port)).close()
    except OSError as error:
        raise DemoError(
            f"Port {port}: {error.strerror}. Choose another port: make serve PORT={port + 1}"
        ) from error


def is_listening(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


def admin_login() -> tuple[str, str]:
    """Return the name and a new password of the demo superuser, which is created if missing."""
    password = secrets.token_urlsafe(9)
    user, _ = get_user_model().objects.get_or_create(
        username="demo", defaults={"is_staff": True, "is_superuser": True}
    )
    user.set_password(password)
    user.save()
    return user.username, password


if __name__ == "__main__":
    sys.exit(main())
