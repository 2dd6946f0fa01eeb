"""Measurements. Timings live here and in docs/benchmarks.md, never in a test."""
