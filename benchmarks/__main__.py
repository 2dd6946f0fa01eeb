"""`python -m benchmarks list` and `python -m benchmarks run NAME…`"""

import argparse
import ast
import importlib
import json
import os
import pkgutil
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console
from rich.table import Table

import benchmarks

NOT_SCENARIOS = {"__main__", "handlers", "measure", "processes", "settings", "soak"}


def scenarios() -> list[str]:
    modules = pkgutil.iter_modules(benchmarks.__path__)
    return [module.name for module in modules if module.name not in NOT_SCENARIOS]


def question(name: str) -> str:
    """The first line of the scenario, read and not imported: that would want a database."""
    source = Path(benchmarks.__file__).with_name(f"{name}.py").read_text(encoding="utf-8")
    return (ast.get_docstring(ast.parse(source)) or "").splitlines()[0]


def prepare(directory: str) -> None:
    """A fresh database with the tables in it."""
    os.environ["MQLITE_BENCHMARK_DIRECTORY"] = directory
    os.environ["DJANGO_SETTINGS_MODULE"] = "benchmarks.settings"
    import django
    from django.core.management import call_command

    django.setup()
    call_command("migrate", verbosity=0, skip_checks=True)


def show(name: str, rows: list[dict[str, object]]) -> None:
    table = Table(title=name)
    for head in rows[0]:
        table.add_column(head, justify="left" if head == "name" else "right")
    for row in rows:
        table.add_row(*map(str, row.values()))
    Console(width=None if sys.stdout.isatty() else 120).print(table)


def run(names: list[str], output: Path | None) -> None:
    with TemporaryDirectory(prefix="mqlite-benchmark-") as directory:
        prepare(directory)
        from benchmarks.measure import surroundings

        results = {"surroundings": surroundings()}
        for name in names:
            results[name] = importlib.import_module(f"benchmarks.{name}").run()
            show(name, results[name])
    print(json.dumps(results["surroundings"]))
    if output:
        output.write_text(json.dumps(results, indent=2) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("list", help="the scenarios")
    running = commands.add_parser("run", help="run scenarios and print their tables")
    running.add_argument("names", nargs="+", choices=scenarios(), metavar="NAME")
    running.add_argument("--output", type=Path, help="write the results there as JSON")
    chosen = parser.parse_args()
    if chosen.command == "list":
        for name in scenarios():
            print(f"{name:14} {question(name)}")
    else:
        run(chosen.names, chosen.output)


if __name__ == "__main__":
    main()
