"""The tests of each rule of docs/conformance.md; the mark `rule` has its number."""
