"""A large purge lets other processes write."""

import json
import time

import pytest

from django_mqlite import signals
from django_mqlite.models import DeadLetter
from tests.support.files import running
from tests.support.workers import ALIAS

DEAD = 200_000
FILL = """
    INSERT INTO mqlite_messages (queue, state, enqueued_at, finished_at, dead_letter_reason, body)
    WITH RECURSIVE n(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < {count})
    SELECT 'jobs', 'dead_lettered', 1, n, 'Broken', x'00' FROM n
"""


@pytest.fixture
def batches():
    """The number of rows that each transaction of a purge deletes."""
    counts = []

    def receive(count, **_facts):
        counts.append(count)

    signals.messages_purged.connect(receive)
    yield counts
    signals.messages_purged.disconnect(receive)


@pytest.mark.rule("7.3")
def test_purge_of_a_large_queue_lets_another_process_write(database, batches):
    with database.other_program() as other:
        other.execute(FILL.format(count=DEAD))
    with running("tests.concurrency.writer", database.path, "nobody") as writer:
        assert writer.stdout.readline() == "ready\n", writer.stderr.read()
        begun = time.time()
        purged = DeadLetter.objects.db_manager(ALIAS).purge_queue("jobs", everything=True)
        ended = time.time()
        output, errors = writer.communicate("stop\n", timeout=60)
    assert (writer.returncode, errors) == (0, "")
    result = json.loads(output)

    assert purged == DEAD
    assert (len(batches), max(batches)) == (DEAD // 1_000, 1_000)
    assert result["errors"] == []
    stored = database.scalar("SELECT count(*) FROM mqlite_messages WHERE queue = 'nobody'")
    assert stored == len(result["writes"]) + 1
    meanwhile = [begin for begin, end in result["writes"] if begun < begin and end < ended]
    assert len(meanwhile) > 20
