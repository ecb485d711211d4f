"""What a stage's work is given, and what its steps give back."""

from __future__ import annotations

import dataclasses
import functools
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from yanmo.options.shared import StageOptions
from yanmo.stage.declaration import Stage
from yanmo.stage.exporter import Telemetry
from yanmo.stage.run_telemetry import CostMeter, Counted
from yanmo.store.commit import Attempt, Recipe, Result, commit_once
from yanmo.store.objects import ObjectStore
from yanmo.store.output import Output, Pause, PausedOutput
from yanmo.store.runs.in_use import Session, announce, work_name
from yanmo.store.runs.work_folder import WorkFolder

Options = TypeVar("Options", bound=StageOptions)
"""The stage's own options."""
Made = TypeVar("Made")
"""What its `prepare` hands to `work` and `finish`."""
KeyInput = Output | Mapping[str, str] | None
"""What a key depends on: an output, or {"content_digest", "uri"}."""


class Observer(Protocol):
    """Hears how one process of one stage stands, such as yanmo.nights.observer: stages know of no nights.

    It never ends a stage, nor holds one up.
    """

    def begins(self, store: ObjectStore, key: str) -> None:
        """The work begins: the key is not committed."""

    def done(self, store: ObjectStore, output: Output, found: Any) -> None:
        """The output is there and handed over; `found` is what a verdict says of the run."""

    def paused(self, store: ObjectStore, paused: PausedOutput) -> None:
        """The work is saved, and goes on in another run."""

    def failed(self, error: BaseException, again: str) -> None:
        """The stage failed; `again` is the command that runs it again."""

    def stopped(self) -> None:
        """A signal ended the process."""


class Ended(NamedTuple):
    """How one try ended."""

    exit_code: int
    message: str
    """Why it is not 0."""


@dataclasses.dataclass(kw_only=True)
class StageRun(Generic[Options, Made]):
    """What a stage's work is given."""

    stage: Stage
    options: Options
    """Resolved."""
    store: ObjectStore
    inputs: dict[str, Output | None]
    telemetry: Telemetry
    given: frozenset[str] = frozenset()
    """Options that a flag, a file or a bundle of options gave; the others are left to themselves."""
    prepared: Made = dataclasses.field(init=False)
    """What `prepare` made; there is none before it returns."""
    started: float = dataclasses.field(default_factory=time.monotonic)
    """When the process began, by the monotonic clock."""
    counted: Counted = dataclasses.field(init=False)
    """Up to where the cost of this process is recorded."""
    again: str = ""
    """The command that runs this again; "" where nobody can say it here."""
    has_failed_before: bool = False
    """Whether an earlier try of this key left word of its failure."""
    key: str = ""
    came_by: str = "found"
    """How the output came to this run: it was made here, or found."""
    is_made: bool = False
    """Whether the output is there, so that its record of cost is closed and a part keeps one of its own."""
    pinned: dict[str, Output] = dataclasses.field(default_factory=dict)
    """Outputs that this run rests on: inputs, and parts as they are made."""
    session: Session = dataclasses.field(init=False, repr=False)
    """What this process uses besides, while it lives."""
    observer: Observer | None = dataclasses.field(default=None, repr=False)
    """Hears how this stage stands; by default nobody does."""
    _pinning: threading.Lock = dataclasses.field(default_factory=threading.Lock, repr=False)
    pause: Pause = dataclasses.field(init=False)
    """Where and why the work stopped; set where it gave no output."""
    attempt: Attempt = dataclasses.field(init=False)
    """Where the output's files go; set when the work begins."""

    def __post_init__(self) -> None:
        self.session = Session(self.store, self.stage.name)
        self.counted = Counted(self.started)

    def input(self, name: str) -> Output:
        """Return the required input `name`."""
        found = self.inputs[name]
        assert found is not None, name
        return found

    @functools.cached_property
    def work_folder(self) -> WorkFolder:
        """Work in progress of this key (checkpoints); survives a kill."""
        return WorkFolder(self.store, work_name(self.stage.name, self.key))

    def part(
        self,
        name: str,
        revision: int,
        semantic: dict[str, Any],
        inputs: Mapping[str, KeyInput],
        build: Callable[[Attempt], Result],
    ) -> Output:
        """The committed output `name` (a tokenizer, baselines), made by `build` if absent or forced."""
        recipe = Recipe(
            stage=name,
            revision=revision,
            semantic=semantic,
            inputs=dict(inputs),
            run_id=self.options.run_id,
            channel=self.options.channel,
        )
        self.session.use(list(recipe.outputs.values()))
        built: list[Attempt] = []

        def noted(attempt: Attempt) -> Result:
            built.append(attempt)
            return _with_cost(self, build, attempt) if self.is_made else build(attempt)

        found = commit_once(
            self.store,
            recipe,
            noted,
            force=self.options.force,
            taken_up=lambda part: self.session.use([part]),
        )
        assert found is not None
        self.telemetry.add("outputs", room="stage", part=name, result="made" if built else "found")
        if self.key:
            self.pin([found])
        return found

    def pin(self, parts: Sequence[Output]) -> None:
        """Let gc know that this run uses parts, which may be old and named by nobody else.

        One at a time each of the first 64 is written at once, later ones when their number has doubled, as
        the list is written whole; several are written together.
        """
        with self._pinning:
            for part in parts:
                self.pinned[f"{part.manifest.stage} {part.manifest.key[:12]}"] = part
            count = len(self.pinned)
            if count <= 64 or count & (count - 1) == 0 or len(parts) > 1:
                announce(self.store, self.stage.name, self.key, self.pinned)


def _with_cost(run: StageRun[Any, Any], build: Callable[[Attempt], Result], attempt: Attempt) -> Result:
    """Return what `build` gives back; its cost is recorded beside it."""
    cost, telemetry = CostMeter(run.counted), Telemetry(attempt.stage)
    result = build(attempt)
    run.counted = cost.show(telemetry)
    attempt.write("metrics.prom", telemetry.text(), role="record")
    return result


@dataclasses.dataclass(frozen=True)
class Prepared(Generic[Made]):
    """What `prepare` gives back."""

    made: Made
    """For the work and for `finish`."""
    inputs: Mapping[str, KeyInput] = dataclasses.field(default_factory=dict)
    """What else the key depends on, beyond options and references."""


class Skip(Exception):
    """Raised by `prepare` when there is nothing to make (no champion yet): an orderly, empty end."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Finish:
    """What a stage shows when its output is there, new or old."""

    parameters: dict[str, str] = dataclasses.field(default_factory=dict)
    """Values of `Stage.parameters`."""
    artifacts: Mapping[str, str | Path] = dataclasses.field(default_factory=dict)
    """Outputs that are not references to what was made: a file (HTML), or the text itself."""
    references: dict[str, Output] = dataclasses.field(default_factory=dict)
    """Parts made along with the output that are not in its manifest (baselines)."""
    carried: dict[str, Output] | None = None
    """What the next task of a pipeline needs besides, by the name of its input: it travels inside the main
    output's artifact, as the parts do that have none of their own. None for a stage that hands on nothing
    so; where it is empty, the next task knows that there is nothing, and looks at no pointer."""
    metadata: dict[str, dict[str, Any]] = dataclasses.field(default_factory=dict)
    """Output name -> scalars for KFP's UI (Metrics)."""
    night: Any = None
    """What a verdict says of the night."""


@dataclasses.dataclass(frozen=True)
class Steps(Generic[Options, Made]):
    """What a stage does by itself."""

    work: Callable[[StageRun[Options, Made]], Result]
    """Makes the output; called only when its key is not committed."""
    settle: Callable[[StageRun[Options, Made]], Options] | None = None
    """The options with values in the place of those that nobody gave and that inputs or machine decide;
    called before the key is made, so it must give the same for ever (store/runs/auto_record.py)."""
    prepare: Callable[[StageRun[Options, Made]], Prepared[Made]] | None = None
    """What the work needs besides its inputs, and what else the key depends on."""
    alone: Callable[[StageRun[Options, Made]], AbstractContextManager[None]] | None = None
    """Held while the output is made, and not where it is there already; raises Busy where another run of the
    channel is at work."""
    finish: Callable[[StageRun[Options, Made], Output], Finish] | None = None
    """Called with the output whether it was made now or before."""
    show_pause: Callable[[Options, ObjectStore, PausedOutput], Finish] | None = None
    """What is shown where an input's stage paused, so that there is nothing to do."""
    failed: Callable[[Options, Exception], Exception | None] | None = None
    """Called where the last try ended with an error: what is to be noted of that; raises nothing. Gives what
    is to be said of the night in its place, if anything is."""
    observer: Callable[[str, StageOptions, float], Observer] | None = None
    """Makes who hears how a process of the stage stands: of its name, options, and when it was started."""
    assist: Callable[[StageRun[Options, Made]], Ended | None] | None = None
    """Does a share of the work where the options say so (`is_helper`): without lease, output, or pointer.
    Gives how the process ends; None for well."""

    def observer_of(self, name: str, options: StageOptions, started: float) -> Observer | None:
        """Return who hears how a process of the stage stands; None for nobody."""
        return self.observer(name, options, started) if self.observer else None
