"""The families of cases."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from hostile import children, folders, formats, options, store_files
from hostile.cases import Case
from hostile.ground import Ground

FAMILIES: dict[str, Callable[[int, Ground, bool], Iterator[Case]]] = {
    "options": options.cases,
    "formats": formats.cases,
    "store": store_files.cases,
    "folders": folders.cases,
    "children": children.cases,
}
"""Family -> its cases; what is drawn comes from a seed, and `whole` leaves nothing to a draw."""
