"""Finds all that an output rests on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from yanmo.common.errors import DataError
from yanmo.store.manifest import Manifest, Reference
from yanmo.store.objects import ObjectStore
from yanmo.store.output import Output, open_reference
from yanmo.store.runs.in_use import INPUTS_RECORD
from yanmo.tools.store.inventory import KeyFolder


@dataclass(frozen=True)
class Edge:
    """One reference in a manifest."""

    label: str
    """`input documents` or `part tokenizer`."""
    reference: Reference


def edges(manifest: Manifest) -> Iterator[Edge]:
    """The outputs that an output was made from and the parts it was committed with."""
    for name, value in sorted(manifest.inputs.items()):
        if value and "manifest_uri" in value:
            yield Edge(f"input {name}", Reference.from_dict(value))
    for name, value in sorted(manifest.references.items()):
        yield Edge(f"part {name}", Reference.from_dict(value))


class Opener:
    """Opens references, each manifest once."""

    def __init__(self, store: ObjectStore) -> None:
        self.store = store
        self._open: dict[tuple[str, str, str], Output] = {}

    def open(self, reference: Reference) -> Output:
        """The output that `reference` pins; raises as `open_reference`."""
        name = reference.stage, reference.key, reference.content_digest
        if name not in self._open:
            self._open[name] = open_reference(self.store, reference)
        return self._open[name]

    def chain(self, roots: Iterable[Output]) -> list[Output]:
        """`roots` and all they rest on, each once, every output after what it rests on.

        Raises:
            DataError: one is missing or damaged; says which output needs it.
        """
        done: dict[tuple[str, str, str], Output] = {}
        entered: set[tuple[str, str, str]] = set()
        for root in roots:
            waiting = [(root, False)]
            while waiting:
                output, opened = waiting.pop()
                name = output.manifest.stage, output.manifest.key, output.content_digest
                if opened:
                    done.setdefault(name, output)
                elif name not in entered:  # a hostile chain may bite its tail
                    entered.add(name)
                    waiting.append((output, True))
                    waiting += [(self._open_edge(output, edge), False) for edge in edges(output.manifest)]
        return list(done.values())

    def _open_edge(self, output: Output, edge: Edge) -> Output:
        try:
            return self.open(edge.reference)
        except DataError as error:
            raise DataError(f"{output}: {edge.label}: {error}") from error


def inputs_of(store: ObjectStore, folder: KeyFolder) -> list[Reference]:
    """Return what INPUTS.json of a key names; empty where there is none.

    Raises:
        DataError: it is damaged.
    """
    found = INPUTS_RECORD.read(store, folder.inputs.name) if folder.inputs else None
    return list(found.inputs.values()) if found else []
