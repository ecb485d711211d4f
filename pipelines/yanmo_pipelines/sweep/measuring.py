"""Makes the runs of a sweep, stage by stage; what several runs share is made once."""

from __future__ import annotations

import hashlib
import logging
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from yanmo.common.errors import DataError, ExitCode, advice, exit_code
from yanmo.common.log_lines import last_words_in, read_line
from yanmo.common.logs import human_bytes, human_seconds
from yanmo.formats.stage_cost import StageCost, stage_cost
from yanmo.options.fields import NONE, flag
from yanmo.stage.declaration import Stage
from yanmo.stage.session import Session
from yanmo.store.manifest import Reference
from yanmo.store.objects import ObjectStore
from yanmo.store.output import Output, open_reference
from yanmo.store.pause import PausedOutput
from yanmo.store.pointers import read_pointer
from yanmo.store.runs.in_use import Removed
from yanmo.store.schema import utc_now
from yanmo.tools.runs.evaluations import Evaluation, read_evaluation
from yanmo_pipelines.processes import Processes, Stopped
from yanmo_pipelines.stages import BALANCE, CURATE, EVALUATE, TOKENIZE, TRAIN
from yanmo_pipelines.sweep.kept_log import run_and_keep
from yanmo_pipelines.sweep.plan import Plan, Run
from yanmo_pipelines.sweep.settings import Name

log = logging.getLogger(__name__)
EVALUATION_SET = "evaluation_set"


class Failed(Exception):
    """A stage of a run did not end well."""

    def __init__(self, stage: str, code: int, reason: str) -> None:
        super().__init__(f"{stage} ended with {code}: {reason}")
        self.code = code


@dataclass
class Result:
    """What became of a run."""

    run: Run
    state: str = "not run"
    """done, failed, paused or not run."""
    code: int = ExitCode.DONE
    reason: str = ""
    model: Output | None = None
    evaluation: Evaluation | None = None
    cost: StageCost = field(default_factory=StageCost)

    @property
    def mean(self) -> float | None:
        return self.evaluation.mean.value if self.evaluation else None


class Chain:
    """Runs stages in a store, each at most once for the same options and inputs."""

    def __init__(self, store: ObjectStore, fixed: Sequence[str], folder: Path, processes: Processes) -> None:
        """
        Args:
            fixed: flags that every stage gets: where the store is, the channel.
            folder: an empty one, for references.
        """
        self._store, self._fixed, self._folder, self._processes = store, fixed, folder, processes
        self._known: dict[tuple[str, ...], Output | Failed] = {}
        self.session = Session(store, "sweep")
        """Lets gc spare what this sweep has made for as long as it goes on: no pointer names it."""

    def output(self, stage: Stage, run: Run, inputs: Mapping[str, Output | str]) -> Output:
        """The output of a stage with the options of `run`.

        Raises:
            Failed: it ended with another exit code than 0, or paused; now or when it was tried before.
            Stopped: a signal came.
        """
        given = [f"{flag(name)}={self._input(value)}" for name, value in inputs.items()]
        command = [*run.flags(stage), *given]
        known = self._known.get((stage.name, *command)) or self._tried(stage, command)
        if isinstance(known, Output) or known.code not in (ExitCode.DONE, ExitCode.RETRY):
            self._known[stage.name, *command] = known  # what a later try may mend is tried for each run
        if isinstance(known, Failed):
            raise known
        return known

    def _tried(self, stage: Stage, command: Sequence[str]) -> Output | Failed:
        for is_last in (False, False, True):
            try:
                made = self._made(stage, command)
                self.session.use([made])
                return made
            except Failed as failure:
                return failure
            except (OSError, ValueError, RuntimeError) as error:
                if is_last or not isinstance(error, Removed):  # gc was faster than our session
                    return Failed(stage.name, int(exit_code(error)), advice(error))
        raise AssertionError("the last try returns")

    def _input(self, value: Output | str) -> str:
        """A file that names an output; a text is handed on as it is."""
        if isinstance(value, str):
            return value
        text = value.reference.to_json()
        path = self._folder / f"{hashlib.sha256(text.encode()).hexdigest()[:16]}.json"
        path.write_text(text, encoding="utf-8")
        return str(path)

    def _made(self, stage: Stage, command: Sequence[str]) -> Output:
        path = self._folder / "made.json"
        path.unlink(missing_ok=True)
        whole = [sys.executable, "-m", stage.module, *self._fixed, *command, f"--reference-out={path}"]
        code, said = run_and_keep(self._processes, whole)
        if code:
            shown = code if code > 0 else ExitCode.RETRY
            raise Failed(stage.name, shown, _last_words(said, stage.name, code))
        text = path.read_text(encoding="utf-8")
        paused = PausedOutput.from_json(text)
        if paused or text.strip() == NONE:
            raise Failed(stage.name, ExitCode.DONE, str(paused or "paused"))
        reference = Reference.from_json(text, str(path))
        try:
            return open_reference(self._store, reference)
        except DataError as error:  # it was there when the stage ended, and our session did not name it yet
            raise Removed(str(error), reference) from error


def _last_words(said: str, stage: str, code: int) -> str:
    """The line of a log that says why a stage failed."""
    if code < 0:
        return f"killed by {signal.Signals(-code).name}"
    texts = [line.strip() for line in said.splitlines() if line.strip()]
    lines = [read_line(text) for text in texts]
    ended = last_words_in([line.message for line in lines if line and line.stage == stage])
    return ended.cause or (texts[-1] if texts else "it said nothing")


class Sweep:
    """The runs of a plan, one after another."""

    def __init__(self, plan: Plan, chain: Chain, store: ObjectStore, channel: str) -> None:
        self.plan, self._chain, self._began = plan, chain, utc_now()
        self.results = [Result(run) for run in plan.runs]
        pinned = read_pointer(store, channel, EVALUATION_SET)
        self._held: Output | str = open_reference(store, pinned) if pinned else NONE
        self._seconds: list[float] = []

    def make(self) -> None:
        """Make every run; one that fails does not stop the others.

        Raises:
            Stopped: a signal came; `results` says how far it went.
        """
        for number, result in enumerate(self.results, start=1):
            log.info("run %d of %d: %s", number, len(self.results), self.plan.called(result.run))
            started = time.monotonic()
            try:
                self._measure(result)
            except Stopped:
                result.state = "stopped"
                raise
            except Failed as failure:
                self._fail(number, result, failure.code, str(failure))
            except (OSError, ValueError, RuntimeError) as error:  # the store, between two stages
                self._fail(number, result, int(exit_code(error)), advice(error))
            else:
                self._note(number, result, time.monotonic() - started)

    def _fail(self, number: int, result: Result, code: int, reason: str) -> None:
        result.state, result.code, result.reason = "failed" if code else "paused", code, reason
        log.error("run %d of %d %s: %s", number, len(self.results), result.state, reason)

    def _measure(self, result: Result) -> None:
        run, output = result.run, self._chain.output
        curated = output(CURATE, run, {EVALUATION_SET: self._held})
        if self._held == NONE:  # the channel has none: all runs are measured on that of the first
            self._held = curated.part(EVALUATION_SET)
        balanced = output(BALANCE, run, {"documents": curated})
        tokenizer = Name(TOKENIZE.name, "tokenizer")
        tokens = output(TOKENIZE, run, {"documents": balanced, "tokenizer": run.start(tokenizer)})
        start = run.start(Name(TRAIN.name, "model"))
        result.model = output(TRAIN, run, {"token_cache": tokens, "model": start})
        result.cost = stage_cost(result.model)
        measured_on = {EVALUATION_SET: self._held, "documents": NONE}
        made = output(EVALUATE, run, {"model": result.model, **measured_on})
        evaluation = read_evaluation(made)
        if evaluation is None:
            raise Failed(EVALUATE.name, ExitCode.DATA, f"{made} holds no results")
        first = next((r.evaluation for r in self.results if r.evaluation), None)
        if first and first.alike != evaluation.alike:
            raise Failed(EVALUATE.name, ExitCode.DATA, f"{made} was not measured as {first.output} was")
        result.evaluation, result.state = evaluation, "done"

    def _note(self, number: int, result: Result, seconds: float) -> None:
        """How it ended, and how long the rest takes, by those that were really made."""
        assert result.model and result.evaluation
        is_new = result.model.manifest.created_at >= self._began
        if is_new:
            self._seconds.append(result.cost.seconds or seconds)
        left = len(self.results) - number
        took = human_seconds(seconds) if is_new else "found, made before"
        log.info("run %d of %d: %.4f bits per character (%s)", number, len(self.results), result.mean, took)
        if left and self._seconds:
            least, most = (human_seconds(left * chosen(self._seconds)) for chosen in (min, max))
            span = f"{least} to {most}" if least != most else least
            log.info("%d left: about %s, if none of them is made already", left, span)
        if number == 1:
            size = sum(file.bytes for file in result.model.manifest.files)
            log.info("a model takes %s of the store, %d more to come", human_bytes(size), left)
