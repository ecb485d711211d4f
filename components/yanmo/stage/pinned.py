"""What the first task of a run leaves for the others: their options, and the inputs that it looked up.

    --options=pinned  --model=pinned:start_model

It lies in the record of the run (store/runs/run_record.py). By way of KFP each task would hang on the first
one, and the graph that a person looks at would show these lines and not the data's.
"""

from __future__ import annotations

from collections.abc import Sequence

from yanmo.common.errors import DataError
from yanmo.options.command_line import load
from yanmo.options.fields import NONE, flag, names_of
from yanmo.options.shared import StageOptions
from yanmo.store.objects import ObjectStore
from yanmo.store.runs.run_record import RUN, run_record_name

PINNED = "pinned"
"""In the place of a value: that of the run's first task."""
OPTIONS = f"--options={PINNED}"
_SHARED = tuple(f"{flag(name)}=" for name in names_of(StageOptions))
"""How words begin that are the task's own, whatever they say: a channel may be called `pinned`."""


def is_pinned(words: Sequence[str]) -> bool:
    """Return whether a command line takes anything of the run's first task."""
    return OPTIONS in words


def load_shared(words: Sequence[str], prog: str) -> StageOptions:
    """Return what a command line says of the options that all stages share: where the rest is.

    Raises:
        UsageError: as `load`.
    """
    return load(StageOptions, [word for word in words if word.startswith(_SHARED)], prog)


def with_pinned(words: Sequence[str], store: ObjectStore, options: StageOptions) -> list[str]:
    """Return a command line with the values that the run's first task left.

    Raises:
        DataError: it left none: its record is gone, damaged, or a later task's, which entered its output
            after gc had removed the first one's.
    """
    record = RUN.read(store, run_record_name(options.channel, options.run_id))
    if record is None or not record.pinned:
        raise DataError(
            f"run {options.run_id} has no record in channel {options.channel!r} of {store.uri}: its first "
            "task, resolve, did not end well, or gc removed it; clone the run"
        )
    found = {PINNED: record.options}
    found |= {f"{PINNED}:{n}": one.to_json() if one else NONE for n, one in record.pinned.items()}

    def filled(word: str) -> str:
        name, equals, value = word.partition("=")
        return word if word.startswith(_SHARED) else name + equals + found.get(value, value)

    return [filled(word) for word in words]
