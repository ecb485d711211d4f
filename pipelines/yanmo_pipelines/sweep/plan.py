"""What a sweep is going to do, checked before the first stage starts."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from yanmo.common.errors import UsageError
from yanmo.common.logs import human_bytes
from yanmo.options.command_line import load
from yanmo.options.fields import by_kind, flag, names_of, option_fields
from yanmo.stage.declaration import Stage
from yanmo_pipelines.stages import CURATE, EVALUATE, TOKENIZE, TRAIN
from yanmo_pipelines.sweep.settings import CHAIN, SEED, STARTS, Name, Values, expanded

_BYTES_OF_A_PARAMETER = 4
_OWN_DEFAULTS = {
    Name(CURATE.name, "sources"): "bundled",
    Name(EVALUATE.name, "split"): "valid",
    Name(EVALUATE.name, "samples"): "0",
    Name(EVALUATE.name, "with_tag"): "false",
}
"""The pipeline's own text; a choice is made on the validation split (docs/recipe.md), by bits alone."""


@dataclass(frozen=True)
class Run:
    """One training and its evaluation."""

    setting: int
    """Number of its setting, from 0."""
    seed: int
    values: Values
    """All that the command line and the sweep itself give."""
    configs: Mapping[str, Any]
    """Stage -> its options."""

    def flags(self, stage: Stage) -> tuple[str, ...]:
        """The flags of one stage, without its inputs."""
        mine = sorted(
            (n.option, v) for n, v in self.values.items() if n.stage == stage.name and n not in STARTS
        )
        return tuple(f"{flag(option)}={value}" for option, value in mine)

    def start(self, name: Name) -> str:
        """A model or tokenizer that was given."""
        return self.values.get(name, "none")

    def identity(self, stages: Sequence[Stage]) -> tuple[Any, ...]:
        """Equal for runs whose outputs of `stages` have the same keys."""
        return tuple(_identity(stage, self.configs[stage.name], self.values) for stage in stages)


@dataclass(frozen=True)
class Plan:
    """All runs of a sweep, in their order: every setting with one seed, then with the next."""

    base: Values
    """What `--set` gives to all."""
    settings: Sequence[Values]
    """What the grid gives to each."""
    seeds: Sequence[int]
    runs: Sequence[Run]

    def called(self, run: Run) -> str:
        """A run in words."""
        given = [f"{name}={value}" for name, value in self.settings[run.setting].items()]
        return ", ".join([*given, f"seed {run.seed}"])

    def times(self, stage: Stage) -> int:
        """How often a stage runs, at most."""
        until = CHAIN[: CHAIN.index(stage) + 1]
        return len({run.identity(until) for run in self.runs})

    @property
    def model_bytes(self) -> int | None:
        """Bytes of all models; None where they start from one whose shape is not known here."""
        if any(run.start(name) != "none" for run in self.runs for name in STARTS):
            return None
        return sum(_parameters(run) * _BYTES_OF_A_PARAMETER for run in self.runs)


def make_plan(
    base: Values, grid: Mapping[Name, Sequence[str]], num_seeds: int, of_store: Sequence[str]
) -> Plan:
    """Expand the grid, and give every stage's own reader what it will be given.

    Args:
        of_store: flags that say where the store is.

    Raises:
        UsageError: a value that some run cannot have, or two settings that are the same training.
    """
    _check_names(base, grid)
    settings = expanded(grid, num_seeds)
    found: dict[tuple[int, int], Run] = {}
    for number, setting in enumerate(settings):
        values = {**_OWN_DEFAULTS, **base, **setting}
        where = ", ".join(f"{n}={v}" for n, v in setting.items()) or "--set"
        configs = _checked(values, of_store, where)
        train = configs[TRAIN.name]
        for seed in range(train.seed, train.seed + num_seeds):
            configs[TRAIN.name] = dataclasses.replace(train, seed=seed)
            found[seed, number] = Run(number, seed, {**values, SEED: str(seed)}, dict(configs))
    runs = [run for _, run in sorted(found.items())]
    seeds = sorted({run.seed for run in runs})
    plan = Plan(base=base, settings=settings, seeds=seeds, runs=runs)
    _refuse_equal(plan)
    return plan


def _check_names(base: Values, grid: Mapping[Name, Sequence[str]]) -> None:
    for name in grid:
        if name in base:
            raise UsageError(f"{name} is given by --set and by --grid: leave one out")
        if name.stage == EVALUATE.name:
            raise UsageError(
                f"--grid {name}: models that are measured in different ways cannot be compared; leave it out"
            )
        if name == SEED:
            raise UsageError(
                f"--grid {name}: --seeds N trains every setting with N seeds, and compares the "
                "means: give that"
            )


def _checked(values: Values, of_store: Sequence[str], where: str) -> dict[str, Any]:
    """Stage -> its options, as its own reader gives them."""
    found: dict[str, Any] = {}
    for stage in CHAIN:
        inputs = [f"{flag(f.name)}=none" for f in option_fields(stage.config, "input")]
        given = [f"{flag(name.option)}={value}" for name, value in values.items() if name.stage == stage.name]
        try:
            found[stage.name] = load(stage.config, [*of_store, *inputs, *given], f"yanmo {stage.name}")
        except UsageError as error:
            raise UsageError(f"{where}: {stage.name}: {error}") from error
    return found


def _identity(stage: Stage, config: Any, values: Values) -> tuple[Any, ...]:
    """What a key depends on: semantic options, and what else was given that is no execution option."""
    others = names_of(stage.config, kind=("input", "environment"))
    given = {n.option: v for n, v in values.items() if n.stage == stage.name and n.option in others}
    return (tuple(by_kind(config, "semantic").items()), tuple(sorted(given.items())))


def _refuse_equal(plan: Plan) -> None:
    """Two settings with one key would be one model, compared with itself."""
    seen: dict[tuple[Any, ...], Run] = {}
    for run in plan.runs:
        twin = seen.setdefault(run.identity(CHAIN[:-1]), run)
        if twin is not run:
            raise UsageError(
                f"--grid: {plan.called(twin)} and {plan.called(run)} are the same training: an option that "
                "does not change what is made (workers, ranks, steps between log lines) cannot be compared"
            )


def _parameters(run: Run) -> int:
    vocab_size = run.configs[TOKENIZE.name].vocab_size
    return int(run.configs[TRAIN.name].num_parameters(vocab_size))


def plan_lines(plan: Plan, where: str, free: int | None) -> Iterator[str]:
    """What will be done, for a person who can still say no.

    Args:
        where: the channel and the store.
        free: free bytes of the store's disk; None where nobody knows.
    """
    settings, seeds = len(plan.settings), len(plan.seeds)
    seeds_named = ", ".join(map(str, plan.seeds[:5])) + (" ..." if seeds > 5 else "")
    yield f"sweep in {where}"
    yield (
        f"{_counted(settings, 'setting')} x {_counted(seeds, 'seed')} ({seeds_named}) = "
        f"{_counted(len(plan.runs), 'training')}, one after another"
    )
    for number, setting in enumerate(plan.settings, start=1):
        yield f"  {number}: " + (" ".join(f"{n}={v}" for n, v in setting.items()) or "as given by --set")
    times = ", ".join(f"{stage.name} {plan.times(stage)}" for stage in CHAIN)
    yield f"runs of each stage, at most: {times}; what is committed already is found by its key"
    size = plan.model_bytes
    if size is not None:
        room = f"; {human_bytes(free)} are free" if free is not None else ""
        yield f"models: {human_bytes(size)} in all, and a checkpoint or two while one is trained{room}"
    yield "no champion and no other pointer of the channel moves"


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number != 1)}"
