"""`python -m benchmarks list` and `python -m benchmarks run NAME… [--compare]`; `run all`."""

import argparse
import ast
import importlib
import json
import os
import pkgutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console
from rich.table import Table

import benchmarks

NOT_SCENARIOS = {
    *("__main__", "floor", "handlers", "measure", "processes", "settings", "soak"),
    *("peer_packages", "peer_scripts", "urls", "writer"),
}


DOCS = Path(benchmarks.__file__).parent.parent / "docs" / "benchmarks.md"


def scenarios() -> list[str]:
    modules = pkgutil.iter_modules(benchmarks.__path__)
    return [module.name for module in modules if module.name not in NOT_SCENARIOS]


def question(name: str) -> str:
    """Return the first line of a scenario's docstring without importing it."""
    source = Path(benchmarks.__file__).with_name(f"{name}.py").read_text(encoding="utf-8")
    return (ast.get_docstring(ast.parse(source)) or "").splitlines()[0]


def prepare(directory: str) -> None:
    """Create a new database with the tables."""
    os.environ["MQLITE_BENCHMARK_DIRECTORY"] = directory
    os.environ["DJANGO_SETTINGS_MODULE"] = "benchmarks.settings"
    import django
    from django.core.management import call_command

    django.setup()
    call_command("migrate", verbosity=0, skip_checks=True)


def show(name: str, rows: list[dict[str, object]]) -> None:
    table = Table(title=name)
    for heading in rows[0]:
        table.add_column(heading, justify="left" if heading == "name" else "right")
    for row in rows:
        table.add_row(*map(str, row.values()))
    Console(width=None if sys.stdout.isatty() else 120).print(table)


def markdown(rows: list[dict[str, object]]) -> str:
    """Return the rows as a Markdown table."""
    headings = list(rows[0])
    lines = [
        headings,
        ["---"] * len(headings),
        *([str(cell) for cell in row.values()] for row in rows),
    ]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def fill_docs(name: str, rows: list[dict[str, object]]) -> None:
    """Replace the table between its markers in docs/benchmarks.md."""
    text = DOCS.read_text(encoding="utf-8")
    before, begin, remainder = text.partition(f"<!-- {name} -->\n")
    if not begin:
        raise SystemExit(f"{DOCS} has no marker <!-- {name} -->")
    _, end, after = remainder.partition("<!-- end -->\n")
    DOCS.write_text(f"{before}{begin}\n{markdown(rows)}\n{end}{after}", encoding="utf-8")


def run(name: str) -> dict[str, object]:
    """Run a scenario in this process on a new database; return its rows and the environment."""
    with TemporaryDirectory(prefix="mqlite-benchmark-") as directory:
        prepare(directory)
        from benchmarks.measure import environment

        facts = environment()
        return {"environment": facts, "rows": importlib.import_module(f"benchmarks.{name}").run()}


def run_in_subprocess(name: str) -> dict[str, object]:
    """Run a scenario in a new process, so that no other scenario influences it."""
    with TemporaryDirectory(prefix="mqlite-benchmark-") as directory:
        output = Path(directory) / "result.json"
        command = [sys.executable, "-m", "benchmarks", "run", name, "--here", f"--output={output}"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        return json.loads(output.read_text(encoding="utf-8"))[name]


def run_all(names: list[str], *, docs: bool, output: Path | None, here: bool) -> None:
    results = {}
    for name in names:
        results[name] = run(name) if here else run_in_subprocess(name)
        show(name, results[name]["rows"])
        if docs:
            fill_docs(name, results[name]["rows"])
        if output:  # after each scenario, so that a failure loses no other result
            output.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    print(json.dumps({name: result.get("environment") for name, result in results.items()}))


def expand_names(names: list[str], *, compare: bool) -> list[str]:
    """Return each name once, in order; "all" excludes the peers, which need the network."""
    if "all" in names:
        names = [*(name for name in scenarios() if name != "peers"), *names]
    expanded = [*names, "peers"] if compare else names
    return [name for name in dict.fromkeys(expanded) if name != "all"]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("list", help="list the scenarios")
    run_parser = commands.add_parser("run", help="run scenarios and print their tables")
    known = [*scenarios(), "all"]
    run_parser.add_argument(
        "names", nargs="+", choices=known, metavar="NAME", help="a scenario, or all"
    )
    run_parser.add_argument("--compare", action="store_true", help="also measure the peers")
    run_parser.add_argument("--docs", action="store_true", help="update the tables in the docs")
    run_parser.add_argument(
        "--here", action="store_true", help="run in this process, for a profiler"
    )
    run_parser.add_argument("--output", type=Path, help="write the results to this file as JSON")
    arguments = parser.parse_args()
    if arguments.command == "list":
        for name in scenarios():
            print(f"{name:14} {question(name)}")
    else:
        names = expand_names(arguments.names, compare=arguments.compare)
        if arguments.here and len(names) > 1:
            parser.error("--here runs one scenario: Django opens one database in a process")
        run_all(names, docs=arguments.docs, output=arguments.output, here=arguments.here)


if __name__ == "__main__":
    main()
