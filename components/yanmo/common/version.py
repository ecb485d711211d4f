"""What `--version` prints."""

from __future__ import annotations

import importlib.metadata


def version() -> str:
    """`yanmo 0.1.0`; says so where the package is not installed."""
    try:
        return f"yanmo {importlib.metadata.version('yanmo')}"
    except importlib.metadata.PackageNotFoundError:
        return "yanmo, not installed: run from its sources"
