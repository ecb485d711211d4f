"""The outputs that an evaluation rests on, back to the text of its model."""

from __future__ import annotations

from dataclasses import dataclass, field

from yanmo.common.errors import DataError
from yanmo.store.manifest import Reference
from yanmo.store.output import Output, open_reference


@dataclass
class Lineage:
    """All of them, nearest first, each once."""

    outputs: list[Output] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    """What could not be read any more, in words."""

    def of_stage(self, stage: str) -> Output | None:
        """Return the nearest output made by `stage`."""
        return next((output for output in self.outputs if output.manifest.stage == stage), None)


def trace(output: Output) -> Lineage:
    """Return the lineage of an output, breadth first; a lost ancestor is noted and does not stop it.

    A model that a training went on from is left out, with all that it rests on: it has a page of its own, and
    of a model that goes on every night the others would fill this one.
    """
    lineage, seen, waiting = Lineage(), set[tuple[str, str]](), [output]
    while waiting:
        output = waiting.pop(0)
        manifest = output.manifest
        if (manifest.stage, manifest.key) in seen:
            continue
        seen.add((manifest.stage, manifest.key))
        lineage.outputs.append(output)
        inputs = {**manifest.inputs, **manifest.references}
        if manifest.stage == "train":
            inputs.pop("model", None)
        for name, value in inputs.items():
            if not value or "manifest_uri" not in value:
                continue
            try:
                waiting.append(open_reference(output.store, Reference(**value)))
            except (DataError, TypeError) as error:
                lineage.lost.append(f"{output}: {name}: {error}")
    return lineage
