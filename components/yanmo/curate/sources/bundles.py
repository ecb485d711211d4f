"""Many small files are read as few: an output costs the store about twenty syncs to disk, whatever its size.

1,000 files of 152 bytes took 219 s one by one, most of it waiting for the disk; 50,000 take 38 s
(`yanmo curate --workers 2` on two shared cores).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from yanmo.curate.sources.listing import SMALL_BYTES, Source, are_many_small

_MOST_FILES, _MOST_BYTES = 1024, 8 << 20
_CUT = 256
"""A bundle ends after one file in so many, chosen by its digest: a new file changes only its own bundle."""


def bundles(sources: Sequence[Source]) -> list[tuple[Source, ...]]:
    """The files in their order, as those that are read into one output each."""
    if not are_many_small(source.bytes for source in sources):
        return [(source,) for source in sources]
    return list(_cut(sources))


def _cut(sources: Sequence[Source]) -> Iterator[tuple[Source, ...]]:
    found, size = list[Source](), 0
    for source in sources:
        if source.bytes >= SMALL_BYTES and found:
            yield tuple(found)
            found, size = [], 0
        found.append(source)
        size += source.bytes
        is_full = len(found) == _MOST_FILES or size > _MOST_BYTES or source.bytes >= SMALL_BYTES
        if is_full or int(source.sha256[:8], 16) % _CUT == 0:
            yield tuple(found)
            found, size = [], 0
    if found:
        yield tuple(found)
