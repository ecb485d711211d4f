"""Copy the lines of a text file; obeys switches that tests need (sleep, fail, leave a child)."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from tiny_stages.declare import TinyStage
from yanmo.common.answers import answer
from yanmo.common.errors import DataError
from yanmo.options.fields import opt
from yanmo.options.shared import StageOptions
from yanmo.stage.run import run
from yanmo.stage.stage_run import Prepared, StageRun, Steps
from yanmo.store.commit import Result
from yanmo.store.manifest import file_sha256


@dataclass(frozen=True, kw_only=True)
class CollectOptions(StageOptions):
    """Collect lines of text."""

    sources: str = opt("lines.txt", "text file to read", kind="environment", form="collect_sources")
    sleep_seconds: float = opt(
        0.0, "seconds to sleep before the work", kind="execution", form="collect_sleep_seconds"
    )
    limit: int = opt(0, "lines to keep; 0 keeps all")
    threads: int = opt(1, "threads", kind="execution")


STAGE = TinyStage(
    name="collect", image="data", revision=1, config=CollectOptions, outputs={"documents": "Dataset"}
)


def prepare(run: StageRun) -> Prepared[None]:
    path = Path(run.options.sources)
    if not path.is_file():
        raise DataError(f"{path}: no such file; give --sources a text file")
    return Prepared(None, {"sources": {"content_digest": file_sha256(path), "uri": path.absolute().as_uri()}})


def work(run: StageRun) -> Result:
    if "TINY_CHILD" in os.environ:  # a worker that would outlive its stage
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        Path(os.environ["TINY_CHILD"]).write_text(f"{child.pid} {os.getpid()}")
    time.sleep(run.options.sleep_seconds)
    lines = Path(run.options.sources).read_text(encoding="utf-8").splitlines()
    lines = lines[: run.options.limit or None]
    answer("progress of collect")
    run.attempt.write("lines.txt", "\n".join(lines))
    return Result(counts={"lines": len(lines)})


if __name__ == "__main__":
    run(STAGE, Steps(work, prepare=prepare))
