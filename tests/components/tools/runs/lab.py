"""A small real store with runs in it: what `yanmo runs` reads, without training anything."""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import ground

from yanmo.store.commit import Attempt, Recipe, Result, commit_once
from yanmo.store.manifest import sealed
from yanmo.store.objects import ObjectStore
from yanmo.store.opening import open_store
from yanmo.store.output import Output
from yanmo.store.pointers import move_pointer
from yanmo.tools.runs.command import main

GENRES = {"诗": 8.0, "词": 7.0}


def raw(name: str = "tang") -> dict[str, Any]:
    digest = name.encode().hex().ljust(64, "0")[:64]
    file = {"name": f"{name}.jsonl", "sha256": digest, "bytes": 1}
    return {"content_digest": digest, "uri": f"file:///raw/{name}.jsonl", "files": [file]}


class Said(ground.Said):
    """How `yanmo runs` ended."""

    @property
    def table(self) -> list[list[str]]:
        """Words of the lines of the table, its heading first."""
        lines = self.out.splitlines()
        first = next(i for i, line in enumerate(lines) if line.startswith("run "))
        rows = [line.split() for line in lines[first:]]
        return rows[: rows.index([])] if [] in rows else rows


@dataclass
class Lab:
    """A store, and the tool on it."""

    uri: str
    numbers: dict[str, int] = field(default_factory=dict)

    @property
    def store(self) -> ObjectStore:
        return open_store(self.uri)

    def tool(self, *argv: str) -> Said:
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            code = main(["--store", self.uri, *argv])
        return Said(code, out.getvalue())

    def commit(
        self,
        stage: str,
        inputs: Mapping[str, Any],
        options: Mapping[str, Any],
        files: Mapping[str, str] | None = None,
        counts: Mapping[str, Any] | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> Output:
        def build(attempt: Attempt) -> Result:
            for name, text in (files or {"content.txt": json.dumps([stage, dict(options)])}).items():
                attempt.write(name, text)
            return Result(counts=dict(counts or {}), metadata=dict(metadata or {}))

        recipe = Recipe(stage=stage, revision=1, semantic=dict(options), inputs=dict(inputs))
        made = commit_once(self.store, recipe, build)
        assert made is not None
        return made

    def point(self, name: str, output: Output, channel: str = "demo") -> None:
        move_pointer(self.store, channel, name, output.reference)

    def evaluation_set(self, number: int = 0, before: Output | None = None, channel: str = "demo") -> Output:
        inputs = {"sources": raw()} | ({"evaluation_set": before} if before else {})
        made = self.commit("evaluation_set", inputs, {"number": number})
        self.point("evaluation_set", made, channel)
        return made

    def model(
        self,
        held: Output | None = None,
        *,
        source: str = "tang",
        curate: Mapping[str, Any] | None = None,
        balance: Mapping[str, Any] | None = None,
        tokenize: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> Output:
        """raw -> documents -> balanced -> cache -> model."""
        inputs = {"sources": raw(source), "evaluation_set": held}
        # what comes out of a stage depends on what went in
        text = json.dumps([source, dict(curate or {}), held.content_digest if held else ""])
        documents = self.commit("curate", inputs, curate or {"min": 1}, {"text": text})
        balanced = self.commit(
            "balance",
            {"documents": documents},
            balance or {"quotas": ""},
            {"text": documents.content_digest + json.dumps(dict(balance or {}))},
        )
        settings = tokenize or {"vocab": 100}
        tokenizer = self.commit("tokenizer", {"documents": balanced}, settings)
        cache = self.commit(
            "tokenize",
            {"documents": balanced, "tokenizer": tokenizer},
            settings,
            {"text": balanced.content_digest + json.dumps(dict(settings))},
        )
        return self.train(cache, **options)

    def train(self, cache: Output, **options: Any) -> Output:
        options = {"seed": 0, "steps": 20, **options}
        files = {"model.safetensors": f"{cache.content_digest} {json.dumps(options, sort_keys=True)}"}
        counts = {"steps": 20, "tokens": 40_000, "parameters": 4_000_000}
        inputs = {"token_cache": cache, "model": None}
        return self.commit("train", inputs, options, files, counts, {"seconds": 50.0})

    def evaluate(
        self, model: Output, held: Output, genres: Mapping[str, Any] = GENRES, **options: Any
    ) -> Output:
        """Commit an evaluation; options: split, documents_per_genre, seed."""
        interval = lambda value: [value - 0.1, value + 0.1]  # noqa: E731
        figures = {g: {"bits_per_character": v, "interval": interval(v)} for g, v in genres.items()}
        mean = sum(genres.values()) / len(genres)
        conditions = {"evaluation_set": held.content_digest, "split": "test", "text_form": "classical-1"}
        conditions |= {k: str(v) for k, v in options.items() if k in ("split", "documents_per_genre")}
        summary = {
            "schema": "yanmo.evaluation/2",
            "model": model.content_digest,
            "conditions": {**conditions, "scoring": "half-window/1"},
            "genres": figures,
            "mean": {"bits_per_character": mean, "interval": interval(mean)},
        }
        inputs = {"model": model, "evaluation_set": held}
        return self.commit("evaluate", inputs, options, {"summary.json": json.dumps(summary)})

    def promote(self, model: Output, previous: Output | None = None, channel: str = "demo") -> None:
        """Make it champion, with a record in the history."""
        self.point("champion", model, channel)
        number = self.numbers[channel] = self.numbers.get(channel, 0) + 1
        record = {
            "schema": "yanmo.promotion/1",
            "number": number,
            "champion_since": "2026-11-20T03:00:00+00:00",
        }
        record |= {"model": vars(model.reference), "previous": vars(previous.reference) if previous else None}
        name = f"pointers/{channel}/history/{number:06d}.json"
        self.store.create(name, sealed(json.dumps(record, indent=1).encode()))


def named(output: Output) -> str:
    return f"{output.manifest.stage}/{output.manifest.key}"
