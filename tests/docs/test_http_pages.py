"""The curl commands on the pages of the broker's services, against a real broker."""

import json
import re
import shutil
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path

import pytest

from django_mqlite.http.routes import RPCS
from tests.http.serving import TOKEN, Server, start_server
from tests.support.pages import Block, Call, blocks_of, calls_of
from tests.support.source import ROOT
from tests.support.waiting import PATIENCE
from tests.support.walk import fits

PAGES = ("queue-service", "admin-service", "own-service")
LEASE = re.compile(r'"seq_number": (\d+), "lock_token": "5f0c…"')


def calls_on(page: str) -> list[tuple[Block, Call]]:
    return [
        (block, call)
        for block in blocks_of(ROOT / "docs" / "http" / f"{page}.md")
        if block.language == "console"
        for call in calls_of(block)
    ]


@pytest.fixture
def server(tmp_path, migrated_file):
    database = Path(shutil.copy(migrated_file, tmp_path / "queue.sqlite3"))
    with closing(sqlite3.connect(database, isolation_level=None)) as connection:
        connection.execute("DELETE FROM mqlite_queues")  # those of the settings
    server = start_server("runbroker", database, tmp_path / "broker.log")
    try:
        server.wait_ready()
        yield server
    finally:
        server.end()


def run(command: str, server: Server) -> str:
    return subprocess.run(
        command.replace("curl ", "curl --silent --show-error ", 1),
        shell=True,
        env={"URL": server.url, "KEY": TOKEN, "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=True,
    ).stdout


def with_tokens(command: str, tokens: dict[int, str]) -> str:
    """Replace the tokens on the page by those that were received."""

    def lease(match: re.Match[str]) -> str:
        return f'"seq_number": {match[1]}, "lock_token": "{tokens[int(match[1])]}"'

    return LEASE.sub(lease, command)


@pytest.mark.skipif(shutil.which("curl") is None, reason="NOT TESTED: no curl")
@pytest.mark.parametrize("page", PAGES)
def test_examples_of_a_service_have_the_shown_answers(page, server):
    tokens: dict[int, str] = {}
    for block, call in calls_on(page):
        output = run(with_tokens(call.command, tokens), server)

        if call.shown:
            assert fits(call.shown.replace("5f0c…", "…"), output), (block.place, call, output)
        else:
            assert "code" not in json.loads(output), (block.place, call, output)
        for message in json.loads(output).get("messages", ()):
            tokens[message["seq_number"]] = message.get("lock_token", "")


def test_every_procedure_has_an_example():
    text = "\n".join(call.command for page in PAGES for _, call in calls_on(page))

    assert {path for path in RPCS if f"$URL{path} " not in text} == set()
