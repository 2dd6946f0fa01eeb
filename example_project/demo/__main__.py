"""Place orders, kill a worker, redrive the dead letters, and account for every order."""

import argparse
import os
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import django

from example_project.processes import DemoError, interrupt_on_signals

from .customers import Plan


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m example_project.demo", description=__doc__)
    parser.add_argument("--orders", type=int, default=1000, help="number of orders to place (1000)")
    orders = parser.parse_args().orders
    if orders < 50:
        parser.error(
            "--orders must be at least 50, so that a worker can be killed while it handles some"
        )
    with interrupt_on_signals(), TemporaryDirectory(prefix="mqlite-demo-") as directory:
        try:
            return run(Plan.of(orders), Path(directory))
        except DemoError as error:
            print(error, file=sys.stderr)
            return 1
        except KeyboardInterrupt:
            print("Interrupted; all processes were stopped.", file=sys.stderr)
            return 130


def run(plan: Plan, directory: Path) -> int:
    os.environ["SHOP_DATABASE"] = str(directory / "shop.sqlite3")
    os.environ["DJANGO_SETTINGS_MODULE"] = "example_project.settings"
    django.setup()
    from .screen import Screen  # noqa: PLC0415 - models can be imported only now
    from .story import play  # noqa: PLC0415

    screen = Screen()
    account = play(plan, directory, screen)
    screen.show_account(account)
    return 1 if account.faults else 0


if __name__ == "__main__":
    sys.exit(main())
