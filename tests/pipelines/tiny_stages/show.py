"""Put the count into a page, and into metrics for KFP's UI."""

from __future__ import annotations

from dataclasses import dataclass

from tiny_stages.declare import TinyStage
from yanmo.options.fields import input_ref
from yanmo.options.shared import StageOptions
from yanmo.stage.run import run
from yanmo.stage.stage_run import Finish, StageRun, Steps
from yanmo.store.commit import Result
from yanmo.store.output import Output


@dataclass(frozen=True, kw_only=True)
class ShowOptions(StageOptions):
    """Show a count."""

    counted: str = input_ref("the count", stages=("count", "train"))
    before: str = input_ref("the count before", stages=("count", "train"), optional=True, default="none")


STAGE = TinyStage(
    name="show",
    image="train",
    revision=1,
    config=ShowOptions,
    outputs={"shown": "Dataset", "page": "HTML", "metrics": "Metrics"},
)


def work(run: StageRun) -> Result:
    count = run.input("counted").path("count.txt").read_text(encoding="utf-8")
    run.attempt.write("page.html", f"<p>{count}</p>", role="record")
    return Result(counts={"count": int(count)})


def finish(run: StageRun, output: Output) -> Finish:
    count = output.manifest.counts["count"]
    return Finish(artifacts={"page": output.path("page.html")}, metadata={"metrics": {"count": count}})


if __name__ == "__main__":
    run(STAGE, Steps(work, finish=finish))
