"""Finds bad behaviour by itself, from the declarations: `python -m hostile --help`, benchmarks/NOTES.md."""
