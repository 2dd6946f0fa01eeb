"""The runner of Django's test suite fails if a test failed or too few ran."""

import unittest

import pytest

from tests.django_suite.runner import CountingRunner


class Samples(unittest.TestCase):
    def passes(self):
        """Nothing is wrong."""

    def fails(self):
        self.fail("wrong")

    def breaks(self):
        raise RuntimeError

    def skips(self):
        self.skipTest("not here")

    @unittest.expectedFailure
    def fails_as_expected(self):
        self.fail("known")

    @unittest.expectedFailure
    def passes_unexpectedly(self):
        """A known failure no longer fails."""


@pytest.mark.parametrize(
    ("names", "failed"),
    [
        (["passes", "passes"], 0),
        (["passes", "fails_as_expected"], 0),
        (["passes", "passes", "skips"], 0),
        (["passes"], 1),
        (["passes", "skips"], 1),
        ([], 2),
        (["passes", "passes", "fails"], 1),
        (["passes", "passes", "breaks"], 1),
        (["passes", "passes", "passes_unexpectedly"], 1),
    ],
)
def test_runner_counts_failures_and_missing_tests(monkeypatch, names, failed):
    monkeypatch.setenv("MQLITE_DJANGO_SUITE_AT_LEAST", "2")
    suite = unittest.TestSuite(map(Samples, names))
    result = unittest.TestResult()
    suite.run(result)

    assert CountingRunner(verbosity=0).suite_result(suite, result) == failed
