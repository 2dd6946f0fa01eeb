"""Follow docs/tutorial.md step by step, with a real server, worker and browser."""

import shutil

import pytest

from tests.support.pages import blocks_of
from tests.support.source import ROOT
from tests.support.walk import MARKS, THIS_ENVIRONMENT, Walk

STEPS = blocks_of(ROOT / "docs" / "tutorial.md")


@pytest.mark.skipif(shutil.which("curl") is None, reason="NOT TESTED: no curl")
def test_tutorial_steps_have_the_described_results(tmp_path):
    walk = Walk(directory=tmp_path, binaries=THIS_ENVIRONMENT, marks=MARKS)
    try:
        for step in STEPS:
            walk.follow(step)

        assert set(walk.running) == {"runserver", "runworker"}
        assert walk.end() == [0, 0]
        assert "is a dead letter" in walk.log("runworker")
        assert "stopped after 5 messages" in walk.log("runworker")
    finally:
        walk.kill()


def test_tutorial_redrives_a_failure_in_the_admin():
    assert [step.text for step in STEPS if step.language == "test"] == list(MARKS)
