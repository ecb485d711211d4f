"""Breaks Yanmo on purpose: `make chaos`, docs/chaos.md."""
