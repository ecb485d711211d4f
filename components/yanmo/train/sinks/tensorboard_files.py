"""TensorBoard: event files in a folder of the training's own.

Written by tensorboard's own package; torch, whose writer is better known, would be imported for it.
"""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

from tensorboard.backend.event_processing.event_file_loader import EventFileLoader
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary, SummaryMetadata
from tensorboard.compat.proto.tensor_pb2 import TensorProto
from tensorboard.compat.proto.tensor_shape_pb2 import TensorShapeProto
from tensorboard.compat.proto.types_pb2 import DT_STRING
from tensorboard.summary.writer.event_file_writer import EventFileWriter

from yanmo.train.sinks.sink import TrainingRun


class TensorBoard:
    """A subfolder of `target`, named after the training."""

    def __init__(self, target: str) -> None:
        self._root = Path(target)

    def begin(self, run: TrainingRun) -> defaultdict[str, int]:
        folder = self._root / run.name
        folder.mkdir(parents=True, exist_ok=True)
        held = _held(folder)
        self._writer = EventFileWriter(str(folder))
        if not held:
            self._say("options", json.dumps(dict(run.options), indent=1, ensure_ascii=False, default=str))
            self._say("run", f"key {run.key}, run {run.run_id or '-'}, channel {run.channel}")
        return held

    def write(self, step: int, figures: Mapping[str, float]) -> None:
        values = [Summary.Value(tag=name, simple_value=value) for name, value in figures.items()]
        self._writer.add_event(Event(wall_time=time.time(), step=step, summary=Summary(value=values)))

    def flush(self) -> None:
        self._writer.flush()

    def end(self, done: bool) -> None:
        self._writer.close()

    def _say(self, tag: str, text: str) -> None:
        """A text, indented so that it is shown as it is."""
        shown = "\n".join(f"    {line}" for line in text.splitlines())
        value = Summary.Value(
            tag=tag,
            metadata=SummaryMetadata(plugin_data=SummaryMetadata.PluginData(plugin_name="text")),
            tensor=TensorProto(
                dtype=DT_STRING,
                string_val=[shown.encode()],
                tensor_shape=TensorShapeProto(dim=[TensorShapeProto.Dim(size=1)]),
            ),
        )
        self._writer.add_event(Event(wall_time=time.time(), step=0, summary=Summary(value=[value])))


def _held(folder: Path) -> defaultdict[str, int]:
    """Figure -> last step."""
    found = defaultdict[str, int](lambda: -1)
    for path in sorted(folder.glob("events.out.tfevents.*")):
        for event in EventFileLoader(str(path)).Load():
            for value in event.summary.value:
                if value.metadata.plugin_data.plugin_name != "text":
                    found[value.tag] = max(event.step, found[value.tag])
    return found
