"""The process that the runs of forked.py are forked from, and what they do.

Real are resolve, curate, balance, tokenize and promote, as the compiled pipeline wires them, and of train all
but the steps: options, key, lease, checkpoints, what its channel is told, pause and commit. In the place of
its steps and of evaluate files are written: checkpoints of a few bytes, and scores as the sequence says.

It reads one JSON document a line from stdin and answers each with an exit code on stdout.
"""

from __future__ import annotations

import functools
import gc
import json
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "components/promote"))  # no package

from by_hand import Stage as ByHand

from nights.forked import (
    BETTER,
    CHANNEL,
    EMPTY_WINDOW,
    FAULT,
    KILLED,
    KILLED_EARLY,
    KILLED_LATE,
    WINDOW,
    text_of,
)
from yanmo.balance.config import STAGE as BALANCE
from yanmo.balance.phases import STEPS as BALANCING
from yanmo.common.errors import EnvironmentFault
from yanmo.curate.config import STAGE as CURATE
from yanmo.curate.phases import STEPS as CURATING
from yanmo.nights.observer import NightObserver
from yanmo.promote.command import judge_and_promote
from yanmo.promote.config import STAGE as PROMOTE
from yanmo.resolve.command import main as resolve_main
from yanmo.resolve.config import STAGE as RESOLVE
from yanmo.stage.run import main as stage_main
from yanmo.stage.stage_run import Steps
from yanmo.store.commit import Result
from yanmo.store.manifest import Reference
from yanmo.store.opening import open_store
from yanmo.store.output import Output, open_reference
from yanmo.store.pause import Pause, PausedOutput
from yanmo.store.pointers import read_pointer
from yanmo.tokenize.config import STAGE as TOKENIZE
from yanmo.tokenize.work import STEPS as TOKENIZING
from yanmo.tools.channel.command import main as channel_command
from yanmo.train import job
from yanmo.train.checkpoints.uploader import Uploader
from yanmo.train.config import STAGE as TRAIN
from yanmo.train.supervision.automatic import TrainRun, settle
from yanmo.train.supervision.benchmark import prepare
from yanmo.train.supervision.supervisor import alone, forget
from yanmo.train.supervision.unfinished import begins, ends, failed, pauses

OPTIONS = (
    "curate.filter_sets=*=none curate.max_filter_share=1 curate.test_characters=600 "
    "curate.valid_characters=200 curate.confirm_characters=0 curate.workers=1 tokenize.vocab_size=800 "
    "tokenize.workers=1 tokenize.agreement_sentences=0 tokenize.judged=0 train.ranks=1 train.batch_rows=8 "
    "train.device=cpu train.layers=1 promote.draws=2000"
)
DATA = (CURATE, BALANCE, TOKENIZE)
STAGES = ("curate", "balance", "tokenize", "train", "evaluate", "promote")


def main() -> None:
    """Serve one request after another until stdin ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what anything prints here is no answer
    for line in sys.stdin:
        print(_serve(json.loads(line)), file=answers, flush=True)


def _serve(request: dict[str, Any]) -> int:
    """Exit code of what is asked for; of a killed process below 0."""
    log = Path(request["log"])
    if request["what"] == "command":
        return _in_a_process(functools.partial(channel_command, request["words"]), log)
    run = _Run(request)
    if request["what"] == "night":
        return _in_a_process(run.pipeline, log)
    code = _said_to(log, run.pipeline)
    gc.freeze()  # a collection in a fork would touch, so copy, every page
    return code


def _in_a_process(work: Callable[[], int], log: Path) -> int:
    assert threading.active_count() == 1, "a fork would have the locks of the other threads, and not them"
    pid = os.fork()
    if pid == 0:
        os._exit(_said_to(log, work))
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _said_to(log: Path, work: Callable[[], int]) -> int:
    """Exit code of `work`, which prints to `log`."""
    before = sys.stdout, sys.stderr
    with log.open("w", buffering=1, encoding="utf-8") as out:
        sys.stdout = sys.stderr = out
        try:
            return int(work())
        except SystemExit as ended:
            return int(ended.code or 0)
        except BaseException:
            traceback.print_exc()
            return 70
        finally:
            sys.stdout, sys.stderr = before


class _Run:
    """One run, in its own process."""

    def __init__(self, request: dict[str, Any]) -> None:
        self.place, self.run_id, self.end = Path(request["place"]), request["run_id"], request["end"]
        self.form, self.sources = request["form"], request["sources"]
        self.bits: dict[str, float] = request["bits"]
        self.store = open_store(request["store"])
        self.by_hand = ByHand(self.store, request["store"])
        self.has_worked = False

    def pipeline(self) -> int:
        """Exit code of the first task that fails."""
        try:
            self._tasks()
        except _Failed as failed_task:
            return failed_task.code
        return 0

    def _tasks(self) -> None:
        fields = {"curate.sources": self.sources, **self.form}
        stages = [f"--stages=yanmo.{name}.config" for name in STAGES]
        self._task(
            RESOLVE,
            resolve_main,
            *stages,
            *(f"--form={name}={value}" for name, value in fields.items()),
            f"--others={OPTIONS}",
        )
        line = f"--options={text_of(self.place / 'resolve/options')}"
        pinned = self.place / "resolve"
        inputs = {
            "curate": [f"--evaluation-set={pinned / 'evaluation_set'}"],
            "balance": [f"--documents={self.place / 'curate/documents'}"],
            "tokenize": [
                f"--documents={self.place / 'balance/documents'}",
                f"--tokenizer={pinned / 'tokenizer'}",
            ],
        }
        for stage, steps in zip(DATA, (CURATING, BALANCING, TOKENIZING), strict=True):
            self._task(stage, _main_of(stage, steps), line, *inputs[stage.name])
        steps = Steps(
            self._train,
            settle=settle,
            prepare=prepare,
            alone=alone,
            finish=forget,
            failed=failed,
            observer=NightObserver,
        )
        given = [f"--token-cache={self.place / 'tokenize/token_cache'}", f"--model={pinned / 'start_model'}"]
        self._task(TRAIN, _main_of(TRAIN, steps), line, *given)
        body = text_of(self.place / "train/model")
        if PausedOutput.from_json(body) is None:
            self._judge(line, open_reference(self.store, Reference.from_json(body, "the model")))

    def _task(self, stage: Any, main: Callable[[list[str]], int], *words: str) -> None:
        folder = self.place / stage.name
        parameters = (*stage.parameters, *stage.objects)
        wanted = {
            "artifacts": {n: {"artifacts": [{"name": n, "uri": str(folder / n)}]} for n in stage.outputs},
            "parameters": {n: {"outputFile": str(folder / n)} for n in parameters},
            "outputFile": str(folder / "executor_output.json"),
        }
        place = [f"--store={self.by_hand.folder}", f"--channel={CHANNEL}", f"--run-id={self.run_id}"]
        code = main([*place, f"--executor-input={json.dumps({'outputs': wanted})}", *words])
        if code:
            raise _Failed(code)

    def _train(self, run: TrainRun) -> Result:
        """In the place of the work of `train`, which is to come to the end that the night has."""
        self.has_worked = True
        root = run.work_folder.path / job.CHECKPOINTS
        root.mkdir(parents=True, exist_ok=True)
        uploader = Uploader(run.work_folder, run.attempt.lease, run.telemetry)
        begins(run, uploader.label)
        cache = run.input("token_cache").reference
        worked = {"key": run.key, "found": uploader.label, "cache": cache.to_json()}
        (self.place / "worked.json").write_text(json.dumps(worked))
        try:
            if self.end in (KILLED, WINDOW):
                _save(root, int(uploader.label.rpartition("-")[2] or 0) + 10)
            if self.end in (KILLED, KILLED_EARLY):
                os.kill(os.getpid(), signal.SIGKILL)
            if self.end == FAULT:
                raise EnvironmentFault("this node's GPU fell off the bus")
            if self.end in (WINDOW, EMPTY_WINDOW):
                pause = Pause(where="a step", why="the window is over")
                pauses(run, uploader.label, pause)
                return Result(counts={}, pause=pause)
        except Exception:
            ends(run, uploader.label)
            raise
        for name, text in {"model.safetensors": run.key, "config.json": "{}", "metrics.jsonl": ""}.items():
            run.attempt.write(name, text)
        return Result(counts={})

    def _judge(self, line: str, model: Output) -> None:
        """evaluate, by hand, and promote."""
        (self.place / "model.json").write_text(json.dumps({"key": model.manifest.key}))
        if self.end == KILLED_LATE or (self.end in (KILLED, KILLED_EARLY) and not self.has_worked):
            os.kill(os.getpid(), signal.SIGKILL)
        if self.end == FAULT and not self.has_worked:
            raise _Failed(78)
        champion = read_pointer(self.store, CHANNEL, "champion")
        served = open_reference(self.store, champion) if champion else None
        best = self.bits[served.manifest.key] if served else 8.0
        drawn = best + (-0.5 if self.end == BETTER else 0.5)
        bits = self.bits.get(model.manifest.key, drawn)
        (self.place / "model.json").write_text(json.dumps({"key": model.manifest.key, "bits": bits}))
        challenger = self.by_hand.evaluate(model, bits)
        words = [f"--challenger=evaluate/{challenger.manifest.key}", "--champion=none"]
        if served is not None:
            against = self.by_hand.evaluate(served, best, pointer="champion_evaluation")
            words[1] = f"--champion=evaluate/{against.manifest.key}"
        nothing = [f"--{name}=none" for name in ("baselines", "writing", "champion-writing")]
        self._task(PROMOTE, judge_and_promote, line, *words, *nothing)


class _Failed(Exception):
    """A task of the run failed."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


def _main_of(stage: Any, steps: Any) -> Callable[[list[str]], int]:
    return lambda words: int(stage_main(stage, steps, [*words, "--metrics-port=-1"]))


def _save(root: Path, step: int) -> None:
    """A whole checkpoint, as the workers leave one; the others go."""
    folder = root / f"step-{step:08d}"
    folder.mkdir()
    (folder / "index.json").write_text(json.dumps({"progress": {}}))
    size = (folder / "index.json").stat().st_size
    (folder / "manifest.json").write_text(json.dumps({"files": [{"name": "index.json", "bytes": size}]}))


if __name__ == "__main__":
    main()
