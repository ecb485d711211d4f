"""What `--version` prints."""

from __future__ import annotations


def version() -> str:
    """`yanmo 0.2.0`; says so where the package is not installed."""
    import importlib.metadata  # 15 ms, with its mail and zip readers; every command comes by this module

    try:
        return f"yanmo {importlib.metadata.version('yanmo')}"
    except importlib.metadata.PackageNotFoundError:
        return "yanmo, not installed: run from its sources"
