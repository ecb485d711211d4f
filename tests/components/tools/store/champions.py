"""A channel with champions in a small real store: every night all six stages, with real tables."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from ground import Ground, rows

from yanmo.common.names import STAGES
from yanmo.formats.records import DOCUMENTS, document_id, write_parquet
from yanmo.formats.token_cache import INDEX, write_index
from yanmo.promote.history.champion_records import ChampionRecord, last_record, write_record
from yanmo.store.commit import Attempt, Recipe, Result, commit_once
from yanmo.store.manifest import digest
from yanmo.store.output import Output
from yanmo.store.pointers import move_pointer
from yanmo.store.runs.run_record import add_to_run


@dataclass
class Night:
    """What one night made."""

    outputs: dict[str, Output]
    learned: frozenset[str]
    """Ids of the texts that its model learned, through the models it began from as well."""
    texts: tuple[str, ...]

    @property
    def model(self) -> Output:
        return self.outputs["train"]


@dataclass
class Channel:
    """Nights of one channel."""

    ground: Ground
    name: str = "main"
    nights: list[Night] = field(default_factory=list)
    champions: list[Night] = field(default_factory=list)
    """By number, from 1; a rollback's is that of the night that it brought back."""
    evaluation_set: Output | None = None

    def night(self, texts: Sequence[str], *, promoted: bool, start: Night | None = None) -> Night:
        """Run the stages; the same texts give the same keys up to tokenize."""
        number = len(self.nights) + 1
        if self.evaluation_set is None:
            self.evaluation_set = self._made("evaluation_set", {}, text="考")
            self._point("evaluation_set", self.evaluation_set)
        before = self.champions[-1] if self.champions else None
        table, varied = rows(tuple(texts)), _varied(tuple(texts))
        curated = self._made("curate", {"sources": _raw(texts)}, tables={"train": table}, copies=table)
        balanced = self._made("balance", {"documents": curated}, tables={"train": varied}, augment="swap")
        cache = self._made("tokenize", {"documents": balanced}, cached=varied)
        inputs: dict[str, Any] = {"token_cache": cache, "model": start.model if start else None}
        model = self._made("train", inputs, seed=number, text=f"model {number}")
        measured = {"model": model, "evaluation_set": self.evaluation_set}
        evaluation = self._made("evaluate", measured, text=f"bits {number}")
        compared = {"challenger": evaluation, "champion": before.outputs["evaluate"] if before else None}
        verdict = self._made("promote", compared, text=f"verdict {number}")
        made = dict(zip(STAGES, (curated, balanced, cache, model, evaluation, verdict), strict=True))
        for stage, output in made.items():
            self._point(stage, output)
        named = {stage: output.reference for stage, output in made.items()}
        add_to_run(self.ground.store, self.name, f"night-{number:03d}", named)
        own = frozenset(row["id"] for row in varied) | frozenset(r["parent_id"] or r["id"] for r in varied)
        night = Night(made, own | (start.learned if start else frozenset()), tuple(texts))
        self.nights.append(night)
        if promoted:
            self.crown(night)
        return night

    def crown(self, night: Night, restores: int = 0) -> None:
        """Make the night's model champion: by its verdict, or by a rollback to the record `restores`."""
        store, last = self.ground.store, last_record(self.ground.store, self.name)
        record = ChampionRecord(
            number=len(self.champions) + 1,
            champion_since="2026-11-23T03:00:00+00:00",
            model=night.model.reference,
            evaluation=night.outputs["evaluate"].reference,
            verdict=night.outputs["promote"].reference,
            previous=last.model if last else None,
            compared_with=last.evaluation if last and not restores else None,
            kind="rollback" if restores else "promotion",
            restores=restores,
            who="li",
            why="a test" if restores else "",
        )
        self._point("champion", night.model)
        self._point("champion_evaluation", night.outputs["evaluate"])
        assert write_record(store, self.name, record)
        self.champions.append(night)

    def _point(self, name: str, output: Output) -> None:
        move_pointer(self.ground.store, self.name, name, output.reference)

    def _made(
        self,
        stage: str,
        inputs: dict[str, Any],
        *,
        text: str = "",
        tables: dict[str, list[dict[str, Any]]] | None = None,
        copies: list[dict[str, Any]] | None = None,
        cached: list[dict[str, Any]] | None = None,
        **options: Any,
    ) -> Output:
        def build(attempt: Attempt) -> Result:
            for split, table in (tables or {}).items():
                name = f"{split}-00000-of-00001.parquet"
                write_parquet(pa.Table.from_pylist(table, schema=DOCUMENTS), attempt.path(name))
                attempt.add(name)
            if copies is not None:
                self._copies(attempt, copies)
            if cached is not None:
                _cached(attempt, cached)
            if text:
                attempt.write("content.txt", text)
            attempt.write("config.yaml", "{}\n", role="record")
            return Result(counts={"characters": len(text)}, metadata={"licenses": {"MIT": 1}})

        recipe = Recipe(stage=stage, revision=1, semantic=options, inputs=inputs)
        made = commit_once(self.ground.store, recipe, build, wait_seconds=0.05)
        assert made is not None
        return made

    def _copies(self, attempt: Attempt, kept: list[dict[str, Any]]) -> None:
        """The table of copies that curate dropped: one of the first text."""
        copy = [{"id": copy_of(kept[0]["id"]), "other_id": kept[0]["id"]}]
        schema = pa.schema([pa.field("id", pa.string()), pa.field("other_id", pa.string())])
        write_parquet(pa.Table.from_pylist(copy, schema=schema), attempt.path("decisions.parquet"))
        attempt.add("decisions.parquet")


def copy_of(id: str) -> str:
    """The id of a copy that curate dropped for the text `id`."""
    return hashlib.sha256(f"copy of {id}".encode()).hexdigest()


def _raw(texts: Sequence[str]) -> dict[str, Any]:
    return {"content_digest": digest(sorted(texts)), "uri": "file:///raw", "files": []}


def _varied(texts: tuple[str, ...]) -> list[dict[str, Any]]:
    """The texts, the first one in a variant only: of that the cache has another id."""
    table = rows(texts)
    first = {**table[0], "text": f"{table[0]['text']}。", "parent_id": table[0]["id"], "rule": "swap"}
    first["id"] = document_id("全唐诗", first["title"], first["text"])
    return sorted([first, *table[1:]], key=lambda row: str(row["id"]))


def _cached(attempt: Attempt, table: list[dict[str, Any]]) -> None:
    index = [
        {"id": r["id"], "genre": "诗", "split": "train", "offset": 9 * n, "length": 9, "characters": 7}
        for n, r in enumerate(table)
    ]
    write_index(
        attempt.path("documents-00000-of-00001.parquet"),
        pa.Table.from_pylist([{**row, "loss_spans": None} for row in index], schema=INDEX),
        vocab_size=512,
        tokenizer="0" * 64,
    )
    attempt.add("documents-00000-of-00001.parquet")
    tokens = json.dumps([row["text"] for row in table]).encode() * 20
    attempt.write("tokens-00000-of-00001.parquet", tokens)
