"""The text that a model was trained on, from manifests: its own, and that of each model it started from."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field

from yanmo.common.errors import DataError
from yanmo.store.output import Output


@dataclass
class TrainingText:
    """What is known of a model's training text."""

    texts: list[Output] = field(default_factory=list)
    """Curated documents, the model's own first, each once."""
    unknown: list[str] = field(default_factory=list)
    """Why there may be more training text, a sentence each; empty if `texts` is all of it."""

    def digests(self) -> set[str]:
        """Content digests of the texts."""
        return {text.content_digest for text in self.texts}


def training_text(model: Output) -> TrainingText:
    """The training text of `model`: from token caches, and balanced documents, back to the curated documents.

    What is no longer in the store, or came from outside of it, is noted in `unknown`; nothing is raised.
    """
    found, waiting, seen = TrainingText(), [model], set()
    while waiting:
        one = waiting.pop(0)
        if one.content_digest in seen:
            continue
        seen.add(one.content_digest)
        with _noting_a_gap(one, found):
            _add_text(one, found)
        with _noting_a_gap(one, found):  # separately: a lost text must not hide the model it started from
            base = one.input("model")
            if base is not None:
                waiting.append(base)
            elif one.manifest.inputs.get("model"):
                found.unknown.append(f"{one}: began from a model from outside the store")
    return found


@contextlib.contextmanager
def _noting_a_gap(model: Output, found: TrainingText) -> Iterator[None]:
    try:
        yield
    except DataError as error:
        found.unknown.append(f"{model}: {error}")


def _add_text(model: Output, found: TrainingText) -> None:
    cache = model.input("token_cache")
    text = cache.input("documents") if cache else None
    if text is None:
        found.unknown.append(f"{model}: does not say which documents it was trained on")
        return
    while (before := text.input("documents")) is not None:
        text = before
    if text.content_digest not in found.digests():
        found.texts.append(text)
