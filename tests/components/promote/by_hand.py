"""A store with evaluations made by hand: what promote reads, without training anything."""

import dataclasses
import json
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

sys.path.insert(0, str(Path(__file__).parents[1] / "evaluate"))  # importlib mode leaves it out

from tiny_commit import commit

from yanmo.formats.records import EVALUATION, write_parquet
from yanmo.formats.training_text import training_text
from yanmo.promote.command import main
from yanmo.store.output import open_reference
from yanmo.store.pointers import read_pointer

NUMBERS = {"诗": 60, "词": 40, "文": 30, "赋": 20}
METRICS = "".join(
    json.dumps({"step": s, "loss": 9 - s / 50, "bits_per_character": 9 - s / 50}) + "\n"
    for s in range(0, 100, 10)
)


@dataclasses.dataclass
class Stage:
    """The store, and promote on it."""

    store: object
    folder: object
    numbers: dict = dataclasses.field(default_factory=lambda: dict(NUMBERS))
    """Genre -> documents of each evaluation."""

    def text(self, name="text"):
        """Curated documents, by reference: nothing in promote reads them."""
        return commit(self.store, "curate", {"text": name}, options={"name": name})

    def model(self, seed, channel="dev", *, text=None, base=None):
        """A model trained on `text`, which began from the model `base`."""
        balanced = commit(self.store, "balance", {"b": f"{text}"}, inputs={"documents": text or self.text()})
        cache = commit(self.store, "tokenize", {"t": f"{text}"}, inputs={"documents": balanced})
        files = {"model.safetensors": f"weights {seed}", "config.json": "{}"}
        files["metrics.jsonl"] = (
            METRICS + '{"step": 90, "valid_bits_per_character": {"诗": 8.0, "mean": 8.5}}\n'
        )
        inputs = {"token_cache": cache, "model": base}
        return commit(self.store, "train", files, inputs=inputs, options={"seed": seed}, channel=channel)

    def evaluate(
        self,
        model,
        bits=8.0,
        *,
        shift=None,
        split="test",
        pointer="evaluate",
        texts=("明月",),
        contamination=0.0,
        confirm=0.0,
        confirm_read=0.0,
        searched=None,
        evaluation_set=None,
        force=False,
        **more,
    ):
        """Commit an evaluation of `model` at about `bits` per character; `shift` by genre.

        `confirm`: by how many bits more the confirmation split is scored; None where it is not.
        `confirm_read`: share of its texts found in the training text.
        `searched`: the texts in which contamination was looked for; by default all of the model's.
        """
        table = self._table(bits, shift or {})
        summary = self._summary(table, model, split)
        samples = {"settings": {"seed": 0, "temperature": 0.8, "top_p": 0.95, "most_tokens": 80}}
        shown = [{"text": t, "tokens": 1, "ended": True, "distinct_2": None} for t in texts]
        files = {
            "documents-00000-of-00001.parquet": lambda path: write_parquet(table, path),
            "summary.json": json.dumps(summary),
            "samples.json": json.dumps({**samples, "genres": dict.fromkeys(self.numbers, shown)}),
        }
        if confirm is not None:
            kept = self._table(bits + confirm, shift or {}, "confirm")
            files["confirmation-00000-of-00001.parquet"] = lambda path: write_parquet(kept, path)
        options = {"bits": bits, "shift": shift, "split": split, "confirm": confirm, **more}
        inputs = {"model": model} | ({"evaluation_set": evaluation_set} if evaluation_set else {})
        texts = training_text(model).texts if searched is None else searched
        found = self._contamination(texts, contamination, None if confirm is None else confirm_read)
        return commit(
            self.store,
            "evaluate",
            files,
            inputs=inputs,
            options=options | {"read": confirm_read},
            pointer=pointer,
            references=found,
            force=force,
        )

    def _table(self, bits, shift, split="test"):
        part, prefix = (1, "") if split == "test" else (2, "c")
        rows = [
            self._row(g, i, bits + shift.get(g, 0.0), prefix)
            for g, n in self.numbers.items()
            for i in range(max(n // part, 1))
        ]
        return pa.Table.from_pylist([{**row, "split": split} for row in rows], schema=EVALUATION)

    def _contamination(self, texts, share, read):
        """The part that evaluate commits beside; none where the store names no training text."""
        if not texts or share is None:
            return {}
        names = ["documents", *(f"documents_{i}" for i in range(2, len(texts) + 1))]
        value = {"window": 13, "share": share, "genres": {}}
        body = json.dumps(value if read is None else {**value, "confirmation": {"share": read}})
        inputs = dict(zip(names, texts, strict=True))
        options, files = {"share": share, "read": read}, {"contamination.json": body}
        return {"contamination": commit(self.store, "contamination", files, inputs=inputs, options=options)}

    @staticmethod
    def _row(genre, i, bits, prefix=""):
        draw = np.random.default_rng([i, sum(map(ord, prefix + genre))])
        characters = int(draw.integers(20, 80))
        row = {
            "id": f"{prefix}{genre}{i:04d}",
            "genre": genre,
            "split": "test",
            "source": "a/b",
            "tokens": characters,
        }
        return {**row, "characters": characters, "bits": characters * (bits + draw.normal(0, 0.3))}

    def _summary(self, table, model, split):
        genres = {}
        for genre, number in self.numbers.items():
            part = table.filter(pc.equal(table["genre"], genre))
            characters, bits = (pc.sum(part[c]).as_py() for c in ("characters", "bits"))
            figures = {"documents": number, "characters": characters, "few_documents": False}
            genres[genre] = {**figures, "bits_per_character": bits / characters, "interval": [7.0, 9.0]}
        mean = float(np.mean([g["bits_per_character"] for g in genres.values()]))
        conditions = {"evaluation_set": "e" * 64, "split": split, "text_form": "classical-1"}
        conditions["scoring"] = "half-window/1"
        return {
            "conditions": conditions,
            "model": model.content_digest,
            "genres": genres,
            "mean": {"bits_per_character": mean, "interval": [7.9, 8.1], "few_documents": False},
        }

    def promote(self, *more):
        return main(["--store", str(self.folder), "--metrics-port", "-1", *more])

    def tool(self, name, *more):
        """`yanmo promote history` or `rollback`."""
        return main([name, "--store", str(self.folder), *more])

    def pointer(self, name):
        return read_pointer(self.store, "dev", name)

    def written(self, name):
        """The text of a file of the last verdict: verdict.json, report.json, report.html, summary.txt."""
        output = open_reference(self.store, self.pointer("promote"))
        return output.path(name).read_text(encoding="utf-8")

    def verdict(self):
        return json.loads(self.written("verdict.json"))

    def records(self):
        return sorted((self.folder / "pointers/dev/history").glob("*.json"))
