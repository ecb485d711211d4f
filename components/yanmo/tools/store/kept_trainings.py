"""Which trainings without a verdict gc keeps: those that a channel's next run finishes, or a person may take
up again."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from yanmo.store.manifest import Reference
from yanmo.store.objects import ObjectStore
from yanmo.store.output import find_output
from yanmo.store.runs.unfinished import Training, is_unfinished_record, to_be_kept
from yanmo.tools.store.inventory import Inventory


@dataclass(frozen=True)
class KeptTraining:
    """One of them: its key, and what is kept with it, with the reason."""

    key: str
    rests_on: list[tuple[Reference, str]]


def trainings_to_keep(
    store: ObjectStore, inventory: Inventory, is_abandoned: Callable[[float], bool]
) -> Iterator[KeptTraining]:
    """The trainings that the records of channels name.

    Args:
        is_abandoned: whether one that was given up or left, and tried last at this time, may go.

    Raises:
        DataError: a record is damaged.
    """
    for info in inventory.runs:
        if is_unfinished_record(info.name):
            with contextlib.suppress(FileNotFoundError):
                data, _ = store.read(info.name)
                for training in to_be_kept(data, f"{store.uri}/{info.name}", is_abandoned):
                    yield KeptTraining(training.key, list(_of_training(store, training, info.name)))


def _of_training(store: ObjectStore, training: Training, by: str) -> Iterator[tuple[Reference, str]]:
    """What a training rests on, and its model, where that is made and waits for its verdict."""
    for reference in filter(None, training.inputs.values()):
        yield reference, f"input of an unfinished training ({by})"
    model = find_output(store, "train", training.key)
    if model is not None:
        yield model.reference, f"a model that was not judged yet ({by})"
