"""Metrics of installed packages: what they are given, and what they may give back."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from yanmo.common.errors import UsageError
from yanmo.common.plugins import Plugin, find_plugin, identity_of
from yanmo.evaluate.config import EvaluateConfig
from yanmo.store.manifest import digest

if TYPE_CHECKING:  # a run that finds its key committed must not wait for torch
    from yanmo.evaluate.document_bits import Scores
    from yanmo.evaluate.documents.reading import Document

log = logging.getLogger(__name__)
METRICS = "yanmo.metrics"
_MOST_VALUES = 1000


@dataclass(frozen=True)
class ScoredText:
    """A text of the evaluation set and what the model made of it."""

    id: str
    genre: str
    source: str
    title: str
    text: str
    characters: int
    """That are not white space; in a chat, those of its answers."""
    tokens: int
    bits: float
    """Of the whole text and its end."""


def named_plugins(options: EvaluateConfig) -> list[Plugin]:
    """The metrics that `--plugin-metrics` names, in its order.

    Raises:
        UsageError: one is named twice, or can be no name.
        EnvironmentFault: no installed package has one.
    """
    found: list[Plugin] = []
    for name in filter(None, (each.strip() for each in options.plugin_metrics.split(","))):
        plugin = find_plugin(METRICS, name, "--plugin-metrics")
        if plugin in found:
            raise UsageError(f"--plugin-metrics: {name} is there twice; leave one out")
        found.append(plugin)
    return found


def plugins_input(options: EvaluateConfig) -> dict[str, dict[str, str]]:
    """Return what the key has of plugins: nothing where none is named."""
    found = named_plugins(options)
    if not found:
        return {}
    identity = identity_of((plugin, None) for plugin in found)
    return {"plugins": {"content_digest": digest(identity), "uri": ", ".join(map(str, found))}}


def plugin_answers(options: EvaluateConfig, documents: Sequence[Document], scores: Scores) -> dict[str, Any]:
    """The contents of plugins.json; {} where no plugin is named.

    Raises:
        PluginFault: one failed, or gave something else than numbers by name.
    """
    found: dict[str, Any] = {}
    texts = _texts(documents, scores)
    for plugin in named_plugins(options):
        values = _values(plugin, texts)
        log.info("%s: %s", plugin, ", ".join(f"{name}={value:g}" for name, value in values.items()))
        entry = {"package": plugin.distribution, "version": plugin.version, "values": values}
        found[plugin.name] = entry
    return {"schema": "yanmo.plugins/1", "metrics": found} if found else {}


def _values(plugin: Plugin, texts: Sequence[ScoredText]) -> dict[str, float]:
    found = plugin.call(texts)
    if not isinstance(found, Mapping) or not 0 < len(found) <= _MOST_VALUES:
        raise plugin.fault(f"gave {found!r:.60}, expected 1 to {_MOST_VALUES} numbers by name")
    for name, value in found.items():
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not isinstance(name, str) or not is_number or not math.isfinite(value):
            raise plugin.fault(f"gave {name!r:.60} = {value!r:.60}, expected a name and a finite number")
    return {name: float(value) for name, value in sorted(found.items())}


def _texts(documents: Sequence[Document], scores: Scores) -> list[ScoredText]:
    return [
        ScoredText(d.id, d.genre, d.source, d.title, d.text, d.characters, int(tokens), float(bits))
        for d, tokens, bits in zip(documents, scores.tokens, scores.bits, strict=True)
    ]
