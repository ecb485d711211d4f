"""A small real stage for the tests of the runtime: `python toy_stage.py --flags`."""

from __future__ import annotations

import errno
import os
import time
from dataclasses import dataclass
from pathlib import Path

from yanmo.common.errors import DataError, UsageError
from yanmo.nights.observer import NightObserver
from yanmo.options.fields import input_ref, opt
from yanmo.options.shared import StageOptions
from yanmo.stage.declaration import Metric, Stage
from yanmo.stage.run import run
from yanmo.stage.stage_run import Finish, Prepared, Skip, StageRun, Steps
from yanmo.store.commit import Attempt, Result
from yanmo.store.output import Output, Pause


@dataclass(frozen=True, kw_only=True)
class ToyOptions(StageOptions):
    """Write a text."""

    earlier: str = input_ref("a text to go on from", stages=("toy", "other"), optional=True, default="none")
    beside: str = input_ref(
        "a text for the part", stages=("toy",), optional=True, default="none", keyed=False
    )
    text: str = opt("诗", "what is written")
    end: str = opt(
        "done",
        "how the work ends",
        kind="environment",
        choices=("done", "pause", "stopped", "bug", "data", "full disk", "skip"),
    )
    workers: int = opt(1, "processes", kind="execution")
    sleep_seconds: float = opt(0.0, "seconds to sleep in the work", kind="environment")
    late_seconds: float = opt(0.0, "seconds to sleep around a part made before and after", kind="environment")

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.text:
            raise UsageError("--text is empty: expected a text")


STAGE = Stage(
    name="toy",
    image="data",
    revision=1,
    config=ToyOptions,
    outputs={"written": "Dataset", "tokenizer": "Model", "page": "HTML", "metrics": "Metrics"},
    parameters=("status", "length"),
    metrics=(
        Metric(name="documents", kind="counter", help="Documents written", zh="写出的文档数", final=True),
    ),
)


def prepare(run: StageRun) -> Prepared[None]:
    if run.options.end == "skip":
        raise Skip("nothing asked for")
    if run.options.late_seconds:  # as curate makes parts before its key is known
        early = run.part("early", 1, {}, {}, build_part)
        time.sleep(run.options.late_seconds)
        assert early.path("tokenizer.json")
    return Prepared(None, {"sources": {"content_digest": "0" * 64, "uri": "file:///raw.txt"}})


def build_part(attempt: Attempt) -> Result:
    attempt.write("tokenizer.json", "{}")
    return Result(counts={"tokens": 0})


def work(run: StageRun) -> Result:
    time.sleep(run.options.sleep_seconds)
    (run.work_folder.path / "checkpoint").write_text("saved")
    if run.options.end in ("pause", "stopped"):
        return Result(
            counts={},
            pause=Pause(where="step 3 of 9", why="--max-seconds 1", is_planned=run.options.end == "pause"),
        )
    if run.options.end == "bug":
        raise KeyError("ours")
    if run.options.end == "full disk" and not os.environ.get("TOY_MENDED"):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "x")
    if run.options.end == "data" and not os.environ.get("TOY_MENDED"):
        raise DataError("line 3 of raw.txt: not a poem; take it out")
    earlier = run.inputs["earlier"]
    before = earlier.path("text.txt").read_text(encoding="utf-8") if earlier else ""
    run.attempt.write("text.txt", before + run.options.text)
    run.attempt.write("page.html", "<p>诗</p>", role="record")
    part = run.part("tokenizer", 1, {}, {}, build_part)
    run.telemetry.add("documents")
    return Result(counts={"characters": len(run.options.text)}, references={"tokenizer": part})


def finish(run: StageRun, output: Output) -> Finish:
    count = output.manifest.counts["characters"]
    if run.options.late_seconds:  # as evaluate makes its baselines after its output
        time.sleep(run.options.late_seconds)
        late = run.part("late", 1, {}, {"text": output}, build_part)
        time.sleep(run.options.late_seconds)
        assert late.path("tokenizer.json") and output.path("text.txt")
    page = Path(output.path("page.html"))
    return Finish(
        parameters={"length": str(count)}, artifacts={"page": page}, metadata={"metrics": {"n": count}}
    )


STEPS = Steps(work, prepare=prepare, finish=finish, observer=NightObserver)

if __name__ == "__main__":
    run(STAGE, STEPS)
