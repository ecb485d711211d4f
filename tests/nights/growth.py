"""How much a night adds to the store: predicted from the first nights, compared with what S3 lists.

A night with other text makes a model, its evaluation, a verdict: as many bytes as in the nights that the
prediction rests on. What the data stages write is in proportion to the data; files that were there before
are not mapped again. A file of which nothing is kept (a poisoned one) changes only what the data stages
write, and a night with nothing new adds records alone.
"""

from __future__ import annotations

from collections.abc import Mapping

from torture.place import Place

PER_FILE = ("curate_map", "curate_sign", "token_shard")
"""Made once for each file (or shard) of data."""
PER_DATA = ("curate", "curate_similar", "balance", "tokenize")
ONCE = ("evaluation_set", "tokenizer")
TOLERANCE = 0.3
"""Share by which all nights together may differ from what was predicted."""
_RECORDS = 60_000
"""Bytes of a night in which nothing is made: records of the run, leases; not measured before."""


def sizes(place: Place) -> dict[str, int]:
    """Stage or folder -> bytes of what the store lists."""
    found: dict[str, int] = {}
    for name, size in place.sizes().items():
        parts = name.split("/")
        where = parts[1] if parts[0] == "cas" else parts[0]
        found[where] = found.get(where, 0) + size
    return found


def added(before: Mapping[str, int], after: Mapping[str, int]) -> dict[str, int]:
    """Where -> bytes that came."""
    return {
        where: size - before.get(where, 0) for where, size in after.items() if size != before.get(where, 0)
    }


def measured(came: Mapping[str, int], data_bytes: int) -> dict[str, float]:
    """What predictions rest on, from a night that made everything.

    Args:
        data_bytes: of all of the night's files.
    """
    per_file = sum(came.get(stage, 0) for stage in PER_FILE) / data_bytes
    per_data = sum(came.get(stage, 0) for stage in PER_DATA) / data_bytes
    each = sum(size for stage, size in came.items() if stage not in (*PER_FILE, *PER_DATA, *ONCE))
    return {"per_new_byte": per_file, "per_byte": per_data, "each_night": float(each)}


def predicted(
    measures: Mapping[str, float], data_bytes: int, new_bytes: int, *, has_other_files: bool, makes: bool
) -> int:
    """Bytes that a night adds.

    Args:
        data_bytes, new_bytes: of the night's files, and of those that no night before had.
        has_other_files: than every night before.
        makes: a model, as its text is another one than in every night before.
    """
    data = measures["per_byte"] * data_bytes + measures["per_new_byte"] * new_bytes
    return round(_RECORDS + data * has_other_files + measures["each_night"] * makes)


def is_as_predicted(added_bytes: int, predicted_bytes: int) -> bool:
    """Of all nights so far."""
    return abs(added_bytes - predicted_bytes) <= TOLERANCE * predicted_bytes
