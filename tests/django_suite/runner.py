"""The test runner for Django's test suite: a run that is too short fails."""

import os

from django.test.runner import DiscoverRunner


class CountingRunner(DiscoverRunner):
    """Django's runner, which also counts the tests that ran.

    A suite that skips most of its tests, or does not find them, has no failures either.
    """

    def suite_result(self, suite, result, **kwargs):
        failed = super().suite_result(suite, result, **kwargs)
        ran = result.testsRun - len(result.skipped)
        wanted = int(os.environ["MQLITE_DJANGO_SUITE_AT_LEAST"])
        print(f"{ran} tests ran, at least {wanted} are expected.")
        return failed + max(0, wanted - ran)
