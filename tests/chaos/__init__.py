"""Breaks Yanmo on purpose: `make chaos`, benchmarks/NOTES.md."""
