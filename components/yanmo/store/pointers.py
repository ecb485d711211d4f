"""What the pointers of a store name, and what their histories remember."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from yanmo.common.store.manifest import Reference
from yanmo.common.store.objects import ObjectInfo, ObjectStore
from yanmo.store.chain import references_in


@dataclass(frozen=True)
class Named:
    """One reference in a file below pointers/."""

    by: str
    """`demo/champion`, or `demo/history/000001`."""
    reference: Reference
    modified: float

    @property
    def is_pointer(self) -> bool:
        """A pointer, not a record of a history."""
        return self.by.count("/") == 1


def read_all(store: ObjectStore, listed: Iterable[ObjectInfo]) -> Iterator[Named]:
    """Every reference in the listed files of pointers/.

    Raises:
        DataError: one of the files is damaged; nobody can then know what it kept.
    """
    for info in listed:
        try:
            data, _ = store.read(info.name)
        except FileNotFoundError:
            continue  # removed by hand since it was listed
        by = info.name.removeprefix("pointers/").removesuffix(".json")
        for reference in references_in(data, f"{store.uri}/{info.name}"):
            yield Named(by, reference, info.modified)
