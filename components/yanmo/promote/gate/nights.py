"""The nights before tonight: gains of one recipe against one champion. Their mean says more than one gain.

Each verdict lists its own night and those before it, so that the next one reads a single file, and no
verdict pins the models of the nights before it (as inputs they would all be kept for ever). A night counts if

    it was compared with the same champion, under the same conditions (evaluation set, split, scoring);
    its recipe is the same: every option of `train` that changes a model, but the seed; the same model to
        start from, or none; the same revision of the stage. The text may have grown from night to night;
    its model was fit by itself (rules 1 to 4): a contaminated night's gain is no gain.

A night that is judged again keeps its place: what comes after it does not count for it, so that its
verdict is found under the same key.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from yanmo.common.errors import DataError
from yanmo.promote.gate.evaluation import Evaluation
from yanmo.promote.gate.verdict import VERDICT_SCHEMA
from yanmo.store.manifest import Reference, digest
from yanmo.store.objects import ObjectStore
from yanmo.store.output import Output, open_reference, read_json

log = logging.getLogger(__name__)
_KEPT = 60
"""Nights in a list, more than a month of them: a night that is judged again finds itself."""


@dataclass(frozen=True)
class Night:
    """One challenger of the recipe."""

    challenger: str
    """Its content digest."""
    share: float
    """Its gain, as a share of the champion's bits."""


def recipe_of(model: Output) -> str | None:
    """Digest of how a model was trained, without its seed and its text; None where that is not known."""
    manifest = model.manifest
    start = manifest.inputs.get("model")
    if "seed" not in manifest.options or "token_cache" not in manifest.inputs:
        return None
    options = {name: value for name, value in manifest.options.items() if name != "seed"}
    return digest(
        {
            "options": options,
            "revision": manifest.revision,
            "model": start["content_digest"] if start else None,
        }
    )


def nights_before(
    store: ObjectStore, verdict: Reference | None, challenger: Evaluation, champion: Evaluation
) -> tuple[Night, ...]:
    """The nights that count together with the challenger's, the oldest first.

    Args:
        verdict: the channel's latest one, or the one that made the challenger champion.
    """
    recipe = recipe_of(challenger.model)
    if verdict is None or recipe is None:
        return ()
    try:
        found = read_json(open_reference(store, verdict), "verdict.json")
        if found["schema"] != VERDICT_SCHEMA:
            return ()
        same = {
            "champion": champion.model.content_digest,
            "conditions": challenger.summary["conditions"],
            "recipe": recipe,
        }
        if any(found[name] != value for name, value in same.items()):
            return ()
        nights = tuple(Night(str(n["challenger"]), float(n["share"])) for n in found["nights"])
        if not all(math.isfinite(night.share) for night in nights):
            raise ValueError("a gain that is no finite number")
    except (DataError, KeyError, TypeError, ValueError) as error:
        log.warning("the verdict %s cannot be read, the nights before do not count: %r", verdict, error)
        return ()
    names = [night.challenger for night in nights]
    own = challenger.model.content_digest
    return nights[: names.index(own)] if own in names else nights


def with_tonight(
    before: Sequence[Night], challenger: Evaluation, gain: Mapping[str, Any] | None, is_fit: bool
) -> list[Night]:
    """The list that the next night reads.

    Args:
        gain: the verdict's; None where there was no champion.
        is_fit: whether the challenger passed rules 1 to 4.
    """
    tonight = (
        [Night(challenger.model.content_digest, float(gain["share"]))] if gain is not None and is_fit else []
    )
    return [*before, *tonight][-_KEPT:]
