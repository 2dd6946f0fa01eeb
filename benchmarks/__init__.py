"""Benchmarks. Timings belong here and in docs/benchmarks.md, never in a test."""
