"""Count the characters of the lines; may pause instead, as training does."""

from __future__ import annotations

from dataclasses import dataclass

from tiny_stages.declare import TinyStage
from yanmo.common.errors import DataError, UsageError
from yanmo.options.fields import input_ref, opt
from yanmo.options.shared import StageOptions
from yanmo.stage.run import run
from yanmo.stage.stage_run import StageRun, Steps
from yanmo.store.commit import Result
from yanmo.store.output import Pause


@dataclass(frozen=True, kw_only=True)
class CountOptions(StageOptions):
    """Count characters."""

    documents: str = input_ref("lines to count", stages=("collect",))
    earlier: str = input_ref("a count to add", stages=("count",), optional=True)
    unit: str = opt("characters", "what is counted", choices=("characters", "bytes"), form="count_unit")
    factor: int = opt(1, "what the count is multiplied with, a number", form="count_factor")
    scale: float = opt(3e-05, "a small number", form="count_scale")
    pause: bool = opt(False, "stop before the end", form="count_pause")

    def __post_init__(self) -> None:
        if self.unit == "bytes" and self.factor > 1:
            raise UsageError("--factor multiplies characters only; leave it out with --unit bytes")


STAGE = TinyStage(
    name="count",
    image="train",
    revision=1,
    config=CountOptions,
    outputs={"counted": "Model", "metrics": "Metrics"},
    parameters=("status",),
)


def work(run: StageRun) -> Result:
    if run.options.pause:
        return Result(counts={}, pause=Pause(where="step 3 of 9", why="--max-seconds 1"))
    text = run.input("documents").path("lines.txt").read_text(encoding="utf-8")
    if not text:
        raise DataError("no lines to count; give --documents an output with lines")
    count = len(text) * run.options.factor
    run.attempt.write("count.txt", str(count))
    return Result(counts={"count": count})


if __name__ == "__main__":
    run(STAGE, Steps(work))
