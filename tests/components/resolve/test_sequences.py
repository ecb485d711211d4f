"""Sequences of nights: whatever happens to a run, the next one knows what to do.

Real are the store, the first task of each run, all readers of options and every note that `train` and
`promote` make. A night's training is nothing but its checkpoints' labels and its model's commit: those of
real trainings are tried in tests/components/train/supervision/test_unfinished.py.
"""

from __future__ import annotations

import itertools
import json
import tempfile
from pathlib import Path
from typing import Any

import pytest

from yanmo.options.command_line import load
from yanmo.options.fields import by_kind
from yanmo.options.one_line import read_line
from yanmo.stage.excluded import digest_of
from yanmo.stage.exporter import Telemetry
from yanmo.stage.stage_run import StageRun
from yanmo.store.commit import Attempt, Recipe, Result, commit_once, find_whole
from yanmo.store.manifest import Reference
from yanmo.store.output import Pause, open_reference
from yanmo.store.runs.unfinished import GIVEN_UP, change_unfinished, read_unfinished
from yanmo.train.config import STAGE, TrainConfig
from yanmo.train.supervision.unfinished import GivenUp, begins, is_trained, pauses

ENDS = ("judged", "paused", "killed after a checkpoint", "killed before one", "killed before its verdict")


class Nights:
    """A channel, and what somebody who looks from outside remembers of it."""

    def __init__(self, channel: Any) -> None:
        self.channel, self.store = channel, channel.store
        self.texts, self.steps, self.least_han = 0, 450, 10
        self.down: frozenset[str] = frozenset()
        self.checkpoints: dict[str, int] = {}
        self.trained_on: dict[str, tuple[int, str, int]] = {}
        """Key -> texts, digest of the list of texts taken down, and filter that it was trained with."""
        self.left: str = ""
        """The training that the last night left unfinished; "" where it was judged."""
        self.stalled = 0
        self.numbers = itertools.count(1)

    def night(self, before: str, end: str) -> None:
        """One night, and that it did what it should."""
        fields = self.happens(before)
        run_id = f"night-{next(self.numbers)}"
        code, found, _ = self.channel.run(
            f"train.steps={self.steps}",
            f"curate.min_han_characters={self.least_han}",
            *fields,
            others=f"curate.exclude={self.listed()}",
            run_id=run_id,
        )
        assert code == 0
        handed = read_line(found["options"])
        run = self.begun(handed, found["training"] != "new", run_id)
        may_be_finished = self.left and before in ("nothing", "new texts", "an option of train")
        if may_be_finished and not self.is_given_up(self.left):
            assert run.key == self.left, "an unfinished training is finished first"
        else:
            assert self.trained_on[run.key] == self.now, "else the newest texts are trained on"
        assert self.trained_on[run.key][1:] == self.now[1:], "never on texts that were taken down or filtered"
        self.goes(run, end)
        assert len(read_unfinished(self.store, "main").open) <= 1

    @property
    def now(self) -> tuple[int, str, int]:
        return self.texts, digest_of(self.down), self.least_han

    def happens(self, before: str) -> list[str]:
        if before == "new texts":
            self.texts += 1
        elif before == "a takedown":
            self.down |= {f"{len(self.down):064x}"}
        elif before == "a filter":
            self.least_han += 1
        elif before == "an option of train":
            self.steps += 1
        return ["resolve.unfinished=start-new"] if before == "leave" else []

    def listed(self) -> Path:
        path: Path = self.channel.folder / "down.txt"
        path.write_text("".join(f"{each}\n" for each in sorted(self.down)))
        return path

    def begun(self, handed: dict[str, dict[str, str]], is_finishing: bool, run_id: str) -> Any:
        """What `train` is given, with its key."""
        if is_finishing:
            named = json.loads(handed["tokenize"]["take"])
            cache = open_reference(self.store, Reference(**named))
        else:
            text = " ".join(map(str, self.now))  # other documents, other tokens
            cache = self.channel.cache(text, digest_of(self.down), min_han_characters=self.least_han)
        flags = [f"--{name.replace('_', '-')}={text}" for name, text in handed["train"].items()]
        options = load(
            TrainConfig,
            [*flags, f"--store={self.store.root}", "--channel=main", f"--run-id={run_id}"],
            "yanmo train",
        )
        run: Any = StageRun(
            stage=STAGE,
            options=options,
            store=self.store,
            inputs={"token_cache": cache, "model": None},
            telemetry=Telemetry(STAGE.name, STAGE.metrics),
        )
        recipe = Recipe(
            stage="train",
            revision=STAGE.revision,
            semantic=by_kind(options, "semantic"),
            inputs={"token_cache": cache},
            run_id=run_id,
        )
        run.key = recipe.key
        run.recipe = recipe
        if not is_finishing:
            self.trained_on.setdefault(run.key, self.now)
        return run

    def goes(self, run: Any, end: str) -> None:
        """The training, its verdict, and how far they come."""
        found = find_whole(self.store, "train", run.key)
        if found is None:
            if not self.trains(run, end):
                return

            def build(attempt: Attempt) -> Result:
                attempt.write("model", run.key)
                return Result(counts={})

            found = commit_once(self.store, run.recipe, build)
            assert found is not None
        is_trained(run, found)
        self.left = run.key
        if end in ("judged", "paused"):  # what pauses is the training, which is over
            change_unfinished(self.store, "main", lambda record: record.without(run.key))
            self.left = ""

    def trains(self, run: Any, end: str) -> bool:
        """Whether it comes to its end."""
        made = self.checkpoints.get(run.key, 0)
        was_given_up = self.is_given_up(run.key)
        try:
            begins(run, label(made))
        except GivenUp:
            assert was_given_up or self.stalled >= 3, "only what made no progress in three nights"
            self.left, self.stalled = "", 0
            return False
        assert not was_given_up, "what was given up is not trained again by itself"
        self.stalled = self.stalled if self.left == run.key else 0
        self.left = run.key
        if end in ("killed after a checkpoint", "paused"):
            self.checkpoints[run.key], self.stalled = made + 1, 0
            if end == "paused":
                pauses(run, label(made + 1), Pause(where="step 1 of 2", why="the night is over"))
            return False
        self.stalled = self.stalled + 1 if end == "killed before one" else 0
        return end != "killed before one"

    def is_given_up(self, key: str) -> bool:
        training = read_unfinished(self.store, "main").of(key)
        return training is not None and training.state == GIVEN_UP


def label(checkpoints: int) -> str:
    return f"step-{checkpoints:08d}" if checkpoints else ""


def test_three_nights_without_a_checkpoint_are_given_up_and_new_texts_are_trained_then(
    channel_in: Any,
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        nights = Nights(channel_in(Path(folder)))
        for _ in range(3):
            nights.night("new texts", "killed before one")
        assert nights.texts == 3 and {key[0] for key in nights.trained_on.values()} == {1}
        nights.night("nothing", "judged")
        (given_up,) = read_unfinished(nights.store, "main").set_aside
        assert given_up.state == GIVEN_UP
        nights.night("nothing", "judged")
        assert {key[0] for key in nights.trained_on.values()} == {1, 3}


@pytest.mark.parametrize("end", ENDS[1:])
def test_new_texts_wait_for_the_run_after_the_one_that_finishes(channel_in: Any, end: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        nights = Nights(channel_in(Path(folder)))
        nights.night("new texts", end)
        nights.night("new texts", "judged")
        nights.night("nothing", "judged")
        assert [texts for texts, _, _ in nights.trained_on.values()] == [1, 2]
