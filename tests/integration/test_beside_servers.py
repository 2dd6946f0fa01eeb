"""The Procfiles of docs/worker.md are run: a server takes an order, the worker handles it."""

import re
import shlex
import signal
import sqlite3
import subprocess
import sys
import uuid
from contextlib import closing, contextmanager

import pytest

from example_project.demo.customers import ACCEPTED, Visit, Wish
from tests.support.ports import answers, free_port
from tests.support.shop import migrated_shop
from tests.support.source import ROOT
from tests.support.waiting import PATIENCE, wait_until

TEXT = (ROOT / "docs" / "worker.md").read_text(encoding="utf-8")
PROCFILES = re.findall(r"^```\n(web: .*?)^```$", TEXT, flags=re.MULTILINE | re.DOTALL)


def here(procfile: str, port: int) -> str:
    """The same lines with this Python, the example project and a free port."""
    python = shlex.quote(sys.executable)
    servers = {
        "gunicorn shop.wsgi": f"-m gunicorn example_project.wsgi --bind 127.0.0.1:{port}",
        "uvicorn shop.asgi:": f"-m uvicorn --port {port} example_project.asgi:",
        "python manage.py": "-m example_project.manage",
    }
    for command, ours in servers.items():
        procfile = procfile.replace(command, f"{python} {ours}")
    return procfile


@pytest.fixture
def shop(tmp_path):
    """The environment of the example project with a database of its own."""
    return migrated_shop(tmp_path / "shop.sqlite3")


@contextmanager
def started(procfile, shop, tmp_path):
    """The manager of the two processes, and where they write; ended as a whole."""
    path = tmp_path / "Procfile"
    path.write_text(procfile)
    log = tmp_path / "log"
    with log.open("wb") as output:
        manager = subprocess.Popen(
            [sys.executable, "-m", "honcho", "-f", str(path), "-d", str(ROOT), "start"],
            env=shop,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        yield manager, log
    finally:
        if manager.poll() is None:
            manager.terminate()  # it takes its processes along
            manager.wait(PATIENCE)


def states(shop) -> list[str]:
    with closing(sqlite3.connect(shop["SHOP_DATABASE"])) as database:
        return [state for (state,) in database.execute("SELECT state FROM mqlite_messages")]


@pytest.mark.skipif(sys.platform == "win32", reason="NOT TESTED: gunicorn is POSIX")
@pytest.mark.parametrize("procfile", PROCFILES, ids=["gunicorn", "uvicorn"])
def test_order_that_a_server_accepts_is_handled_by_the_worker_beside(procfile, shop, tmp_path):
    port = free_port()
    with started(here(procfile, port), shop, tmp_path) as (manager, log):
        wait_until(lambda: answers(port) or manager.poll() is not None, "the server to open")
        assert manager.poll() is None, log.read_text()

        with closing(Visit(port)) as visit:
            answer = visit.place(Wish(reference=str(uuid.uuid4()), customer=1, article=1))

        assert answer.status == ACCEPTED
        wait_until(lambda: states(shop) == ["completed"], "the worker to handle it")
        manager.send_signal(signal.SIGTERM)
        manager.wait(PATIENCE)
    assert "stopped after 1 messages" in log.read_text()
