"""Validation during training: bits per character without tags, with `<|eos|>`, and what they decide."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray

from yanmo.common.errors import DataError
from yanmo.common.words import plural
from yanmo.formats.token_cache import TokenCache
from yanmo.model.scoring import BATCH_TOKENS, token_bits
from yanmo.train.backends.engine import Engine
from yanmo.train.config import TrainConfig
from yanmo.train.memory.estimate import SCORED_TOKENS
from yanmo.train.schedule import Plateau, ValidationPatience

_SHARE = 0.01
_PASSES = 3
"""What a step costs, in forward passes: one forward, two backward."""
_LEAST_CHARACTERS = 250


@dataclass(frozen=True)
class Validation:
    """The validation documents of a training. Parallel arrays, and the names of the genres."""

    genres: list[str]
    genre: NDArray[np.int64]
    """Index into `genres`."""
    characters: NDArray[np.int64]
    """Characters that are not white space; in a chat, those of its answers."""
    documents: list[NDArray[np.int64]]
    """Token ids."""
    spans: list[list[list[int]] | None]
    """[begin, end) of the tokens that count (in a chat, its answers); None if all do."""

    @classmethod
    def choose(cls, cache: TokenCache, most_characters: int, on: str = "all") -> Validation:
        """Return the first documents of each genre in the cache, until they hold `most_characters` or more.

        Args:
            on: `all`, or `answers` for those with silent tokens alone: chats.

        Raises:
            DataError: only answers are asked for, and no chat is held out.
        """
        index = cache.split("valid")
        is_taken = np.ones(len(index.genre), np.bool_)
        if on == "answers":
            is_taken[:] = False
            is_taken[list(index.loss_spans)] = True
            if most_characters and not is_taken.any():
                raise DataError(
                    f"--valid-on answers: expected chats among the {len(is_taken)} held-out documents of the "
                    "token cache, found none: give chats to train on (docs/tutorials/chat.md), or "
                    "--valid-on all"
                )
        chosen: list[int] = []
        for genre in np.unique(index.genre):
            places = np.flatnonzero((index.genre == genre) & is_taken)
            before = np.cumsum(index.characters[places], dtype=np.int64) - index.characters[places]
            chosen += places[before < most_characters].tolist()
        documents = []
        for i in chosen:
            begin, length = int(index.offset[i]), int(index.length[i])
            tokens = cache.tokens[int(index.shard[i])][begin : begin + length]
            documents.append(tokens.astype(np.int64))
        return cls(
            genres=list(cache.genres),
            genre=index.genre[chosen].astype(np.int64),
            characters=index.characters[chosen].astype(np.int64),
            documents=documents,
            spans=[index.loss_spans.get(i) for i in chosen],
        )

    @property
    def num_tokens(self) -> int:
        """Tokens that one validation reads."""
        return sum(len(document) for document in self.documents)

    def bits_per_character(self, engine: Engine, beat: Callable[[], None] = lambda: None) -> dict[str, float]:
        """Return bits per character by genre, and their `mean`; each rank scores its share, and all get all
        results.

        Args:
            beat: called after each batch, so that a long validation does not look like a hang.
        """
        mine = range(engine.rank, len(self.documents), engine.world_size)
        documents = [self.documents[i] for i in mine]
        at_once = SCORED_TOKENS if engine.device.type == "cuda" else BATCH_TOKENS
        with engine.scoring() as decoder:
            scored = token_bits(decoder, documents, batch_tokens=at_once, each_batch=beat)
        bits = [counted_bits(each, self.spans[i]) for i, each in zip(mine, scored, strict=True)]
        sums = np.bincount(self.genre[list(mine)], bits, len(self.genres))
        total = torch.from_numpy(sums)
        if engine.world_size > 1:  # one process stays on the CPU: MPS knows no float64
            total = total.to(engine.device)
            dist.all_reduce(total)
        characters = np.bincount(self.genre, self.characters, len(self.genres))
        found = {
            genre: float(total[i]) / characters[i] for i, genre in enumerate(self.genres) if characters[i]
        }
        return {**found, "mean": float(np.mean(list(found.values())))} if found else {}


def counted_bits(bits: NDArray[np.float64], spans: list[list[int]] | None) -> float:
    """Return the bits of the tokens that carry loss; `bits[k]` is of token `k + 1` of the document."""
    if spans is None:
        return float(bits.sum())
    return float(sum(bits[begin - 1 : end - 1].sum() for begin, end in spans))


@dataclass(frozen=True)
class Curve:
    """The validation curve of a training: which steps are measured, and on what.

    Nothing rests on them: no checkpoint is kept for one, no learning rate follows, and the model is the
    same without them (--valid-every is for that). So they may be made on less text, and together they take
    1 % of the training's operations at most, a forward pass being a third of a step. A training too short
    for two points has no curve.
    """

    validation: Validation
    steps: frozenset[int] = frozenset()

    @classmethod
    def of(cls, options: TrainConfig, cache: TokenCache) -> Curve:
        """Return the curve that --valid-points asks for, within its budget; no steps where there is none."""
        points = min(options.valid_points, options.steps)
        if options.valid_every or not options.valid_characters or not points:
            return cls(Validation.choose(cache, 0))
        budget = _SHARE * _PASSES * options.steps * options.batch_rows * options.context
        characters = options.valid_characters
        validation = Validation.choose(cache, characters)
        while validation.num_tokens * points > budget and characters // 2 >= _LEAST_CHARACTERS:
            characters //= 2
            validation = Validation.choose(cache, characters)
        if validation.documents:
            points = min(points, int(budget / validation.num_tokens))
        if points < 2 or not validation.documents:
            return cls(Validation.choose(cache, 0))
        return cls(validation, frozenset(round(options.steps * i / points) for i in range(1, points + 1)))


@dataclass
class ValidationPolicy:
    """Decides after every validation; all ranks see the same value and so decide alike."""

    stopping: ValidationPatience | None
    plateau: Plateau | None
    is_over: bool = False
    """Whether the training should end: there was no gain in --early-stopping validations."""

    @classmethod
    def of(cls, options: TrainConfig) -> ValidationPolicy:
        """Return the policy that the options ask for."""
        delta = options.early_min_delta
        plateau = None
        if options.schedule == "plateau":
            patience = ValidationPatience(options.plateau_validations, delta)
            plateau = Plateau(patience, options.floor)
        stopping = ValidationPatience(options.early_stopping, delta) if options.early_stopping else None
        return cls(stopping, plateau)

    @property
    def multiplier(self) -> float:
        """Factor of the learning rate."""
        return self.plateau.multiplier if self.plateau else 1.0

    def update(self, bits_per_character: float) -> list[str]:
        """Note a validation; returns what was decided, a sentence each."""
        found = []
        if self.plateau and self.plateau.update(bits_per_character):
            found.append(f"learning rate times {self.plateau.multiplier:g}")
        if self.stopping and self.stopping.update(bits_per_character):
            self.is_over = True
            found.append(f"no gain in {plural(self.stopping.most, 'validation')}: the training ends")
        return found

    def state(self) -> dict[str, Any]:
        """State for a checkpoint, as JSON values."""
        return dataclasses.asdict(self)

    def restore(self, state: dict[str, Any]) -> None:
        """Restore what `state` returned; the limits are those of the options, which may be others now."""
        if self.stopping and state["stopping"]:
            self.stopping = _restored(self.stopping, state["stopping"])
        if self.plateau and state["plateau"]:
            patience = _restored(self.plateau.patience, state["plateau"]["patience"])
            multiplier = state["plateau"]["multiplier"]
            self.plateau = dataclasses.replace(self.plateau, patience=patience, multiplier=multiplier)
        self.is_over = state["is_over"]


def _restored(patience: ValidationPatience, state: dict[str, Any]) -> ValidationPatience:
    return dataclasses.replace(patience, best=state["best"], waited=state["waited"])


def mean_of(found: dict[str, float]) -> float:
    """Return the mean over genres, on which decisions rest; inf if a validation has no finite one."""
    mean = found.get("mean", math.inf)
    return mean if math.isfinite(mean) else math.inf
