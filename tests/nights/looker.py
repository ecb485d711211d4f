"""Somebody who looks at each night of a channel from outside, remembers what was, and says what must be.

By what a night was given and how it ended follows, by the book (docs/tutorials/every-night.md), which
training it had to work on, from which checkpoint, and what the channel has begun and not judged after it.
"""

from __future__ import annotations

import dataclasses
import functools
import io
import itertools
import json
import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import zstandard

from nights.forked import (
    BETTER,
    CHANNEL,
    EMPTY_WINDOW,
    FAULT,
    KILLED,
    KILLED_LATE,
    WINDOW,
    WORSE,
    Ended,
    Forker,
    ShortNights,
)
from nights.texts import CORPUS, folded
from yanmo.store.file_store import FileStore
from yanmo.store.runs.unfinished import GIVEN_UP, LEFT, OUTDATED, read_unfinished

NOTHING, NEW, GONE, COPY = "nothing", "new texts", "a file is gone", "a copy of the evaluation set"
DOWN, LIFT, FILTER = "a text is taken down", "a takedown is lifted", "another filter"
OPTION, LEAVE = "another option of train", "the form leaves what was begun"
LEFT_BY_HAND = "a person leaves what was begun, for another option"
RESUME = "a person takes up what was set aside last"
BEFORE = (NOTHING, NEW, GONE, COPY, DOWN, LIFT, FILTER, OPTION, LEAVE, LEFT_BY_HAND, RESUME)
"""What happens before a night."""
STALLED = 3
"""The default of train.stalled_runs."""
State = tuple[tuple[tuple[str, int], ...], frozenset[str], int, int]


@functools.cache
def _pool() -> list[dict[str, Any]]:
    """Short texts of the bundled corpus, each once."""
    with CORPUS.open("rb") as file, zstandard.ZstdDecompressor().stream_reader(file) as stream:
        lines = itertools.islice(io.TextIOWrapper(stream, encoding="utf-8"), 8000)
        return [one for one in map(json.loads, lines) if 40 < len(one["text"]) < 300]


@dataclasses.dataclass
class Begun:
    """A training, as who looks from outside remembers it."""

    state: State
    """Files, texts taken down, filter and option that its run had."""
    cache: str = ""
    checkpoint: str = ""
    stalled: int = 0
    """Nights in a row without a new checkpoint, or, once it is trained, without a verdict."""
    is_trained: bool = False


class Looker:
    """Nights of one channel, and what somebody who looks at each of them remembers."""

    def __init__(self, forker: Forker, folder: Path) -> None:
        self.nights = ShortNights(forker, folder)
        self.root = self.nights.store
        self.store = FileStore(self.root)
        self.numbers, self.texts = itertools.count(1), itertools.count(1)
        self.files: dict[str, int] = {}
        self.down: set[str] = set()
        self.least_han, self.steps = 10, 40
        self.begun: dict[str, Begun] = {}
        self.waiting: list[str] = []
        """Keys of the trainings that the next runs finish, the first one first."""
        self.given_up: set[str] = set()
        self.judged_last: State | None = None
        self.clean: set[str] = set()
        """Keys of curate's outputs whose texts were looked at."""
        self.commands: dict[str, str] = {}
        """Key -> the command that takes it up again, as the log said when it was given up."""

    @classmethod
    def at_first(cls, forker: Forker, folder: Path) -> Looker:
        """A channel with a champion, whose only night `forker` has run itself."""
        (folder / "data").mkdir(parents=True)
        looker = cls(forker, folder)
        looker.write("0.jsonl", 100)
        form = {"train.steps": str(looker.steps)}
        ended = looker.nights.night("first", form, BETTER, is_forked=False)
        assert ended.code == 0, ended.said
        looker.begun[ended.model] = Begun(looker.state, is_trained=True)
        looker.judged_last = looker.state
        return looker

    def copied(self, folder: Path, is_new: bool) -> Looker:
        """This channel after its first night, or another one before it, in a folder of its own."""
        looker = Looker(self.nights.forker, folder)
        shutil.copytree(self.nights.sources, looker.nights.sources)
        looker.files = dict(self.files)
        if not is_new:
            shutil.copytree(self.root, looker.root)
            looker.nights.bits, looker.judged_last = dict(self.nights.bits), self.judged_last
            looker.begun = {key: dataclasses.replace(begun) for key, begun in self.begun.items()}
        return looker

    @property
    def state(self) -> State:
        return tuple(sorted(self.files.items())), frozenset(self.down), self.least_han, self.steps

    def night(self, before: str, end: str) -> None:
        """One night, and that it did what it should."""
        form = self.happens(before)
        if self.down:
            form["curate.exclude"] = str(self.list_of_down())
        form |= {"curate.min_han_characters": str(self.least_han), "train.steps": str(self.steps)}
        manifests, champion = self.manifests(), self.pointer("champion")
        self.forget_what_is_not_finished()
        run_id = f"night-{next(self.numbers)}"
        ended = self.nights.night(run_id, form, end)
        made = self.manifests()
        assert not set(manifests) - set(made), "nothing that was committed is gone"
        new = set(made) - set(manifests)
        self.is_one_training(ended, new)
        self.goes_on_from_where_it_was(ended)
        self.comes_to_its_end(ended, end, new)
        self.only_the_gate_moves_the_champion(ended, champion, made)
        self.learns_no_text_that_it_must_not(ended, made)
        self.all_that_is_given_up_is_loud(ended)

    def happens(self, before: str) -> dict[str, str]:
        """Make it so; what the form says of it."""
        if before == NEW:
            self.write(f"{next(self.texts)}.jsonl", 30)
        elif before == GONE and len(self.files) > 1:
            name = sorted(self.files)[-1]
            (self.nights.sources / name).unlink()
            del self.files[name]
        elif before == COPY and self.pointer("evaluation_set"):
            self.copy_the_evaluation_set()
        elif before == DOWN and self.pointer("curate"):
            self.take_down()
        elif before == LIFT and self.down:
            self.lift()
        elif before == FILTER:
            self.least_han += 1
        elif before == OPTION:
            self.steps += 1
        elif before == LEFT_BY_HAND and self.waiting:
            self.leave()
        elif before == RESUME:
            self.take_up()
        elif before == LEAVE:
            self.waiting.clear()
            return {"resolve.unfinished": "leave"}
        return {}

    def write(self, name: str, count: int) -> None:
        """A file of real texts, which no other file has."""
        number = int(name.partition(".")[0])
        begin = 100 + 30 * number if number else 0
        rows = _pool()[begin : begin + count]
        assert len(rows) == count
        self.write_rows(name, rows)

    def copy_the_evaluation_set(self) -> None:
        rows = [{k: row[k] for k in ("genre", "title", "text")} for row in self.evaluation_texts()]
        self.write_rows("copy.jsonl", rows)

    def write_rows(self, name: str, rows: list[dict[str, Any]]) -> None:
        lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        (self.nights.sources / name).write_text(lines, encoding="utf-8")
        self.files[name] = len(rows)

    def take_down(self) -> None:
        """A text that the channel has learned from."""
        curate = self.pointer("curate")
        assert curate is not None
        kept = {row["id"] for row in self.evaluation_texts()}
        ids = sorted({row["id"] for row in self.rows("curate", curate["key"], "train")} - kept - self.down)
        chosen = ids[len(ids) // 2]
        self.down.add(chosen)

    def list_of_down(self) -> Path:
        path = self.nights.store.with_name("down.txt")
        path.write_text("".join(f"{one}\n" for one in sorted(self.down)), encoding="utf-8")
        return path

    def lift(self) -> None:
        """One of the texts that are taken down may be read again."""
        self.down.remove(min(self.down))

    def leave(self) -> None:
        """The first one that waits; with the option that was right from now on."""
        key = self.waiting.pop(0)
        code, said = self.channel("unfinished", f"--leave=train/{key[:12]}", "--who=li")
        assert code == 0 and "left by li" in said
        self.steps += 1

    def take_up(self) -> None:
        """The last one that was set aside; what was given up by the command that was named, word for word."""
        aside = read_unfinished(self.store, CHANNEL).set_aside
        if not aside:
            return
        key, name = aside[-1].key, aside[-1].name
        if aside[-1].state == GIVEN_UP:
            words = shlex.split(self.commands.pop(key))
            assert words[:2] == ["yanmo", "channel"]
            code, said = self.nights.command(*words[2:])
            self.given_up.remove(key)
        else:
            code, said = self.channel("unfinished", f"--resume={name}")
        assert code == 0 and f"finishes {name} first" in said
        self.waiting.insert(0, key)
        # That a model is there already is seen by the next run, whose try does not count.
        self.begun[key].stalled = -1 if self.begun[key].is_trained else 0

    def channel(self, *words: str) -> tuple[int, str]:
        """Exit code and output of `yanmo channel`."""
        return self.nights.command(*words, f"--store={self.root}", f"--channel={CHANNEL}")

    def forget_what_is_not_finished(self) -> None:
        """Of those that wait the run passes over what may not be trained on, and what was tried too often."""
        while self.waiting:
            first = self.begun[self.waiting[0]]
            may_be = first.state[1:3] == self.state[1:3]
            if may_be and not (first.is_trained and first.stalled >= STALLED):
                return
            self.waiting.pop(0)

    def is_one_training(self, ended: Ended, new: set[str]) -> None:
        """The one that was begun first; else what the form says."""
        models = [name for name in new if name.startswith("train/")]
        assert len(models) <= 1 and models in ([], [f"train/{ended.model}"])
        if self.waiting:
            assert ended.training == f"finish train/{self.waiting[0][:12]}", ended.said
            data = {name for name in new if name.split("/")[0] in ("curate", "balance", "tokenize")}
            assert not data, "new data wait"
        else:
            assert ended.training == "new", ended.said
            if ended.worked is not None:
                training = self.begun.setdefault(ended.model, Begun(self.state, ended.worked.cache))
                training.state = self.state

    def goes_on_from_where_it_was(self, ended: Ended) -> None:
        if ended.worked is not None:
            training = self.begun[ended.worked.key]
            assert ended.worked.found == training.checkpoint, "no step is done twice"
            assert ended.worked.cache == training.cache, "with the data that it began with"

    def comes_to_its_end(self, ended: Ended, end: str, new: set[str]) -> None:
        """What became of the training, by the book: whether the next run finishes it."""
        key = ended.model or self.refused_key(ended)
        assert key, ended.said
        training = self.begun[key]
        if self.waiting:
            assert self.waiting.pop(0) == key
        if not ended.model:
            assert training.stalled >= STALLED, "only what made no progress in three nights"
            # it may have read new files that bring no new text, such as a copy of the evaluation set
            assert not {name for name in new if not name.startswith("curate")}, "the same again is refused"
            self.given_up.add(key)
        elif ended.worked is None or end in (BETTER, WORSE, KILLED_LATE):
            self.is_judged_or_waits(ended, training, new)
        else:
            self.goes_on_or_is_given_up(ended, end, training)

    def refused_key(self, ended: Ended) -> str:
        """Key of the training that this run gave up or refused."""
        found = re.search(r"train/([0-9a-f]{12}) \([^)]*\) is given up: ", ended.said)
        if not found:
            return ""
        assert ended.code == 65, ended.said
        return next(key for key in self.begun if key.startswith(found[1]))

    def is_judged_or_waits(self, ended: Ended, training: Begun, new: set[str]) -> None:
        is_found = training.is_trained
        if ended.code == 0:
            training.is_trained, training.stalled = True, 0
            if is_found and self.judged_last == self.state == training.state:
                assert not new, "nothing new leaves nothing new"
            self.judged_last = training.state
            return
        assert ended.code in (-9, 78), ended.said
        is_noted = read_unfinished(self.store, CHANNEL).of(ended.model) is not None
        assert is_noted or is_found, "the next night judges it"
        training.stalled = training.stalled + 1 if is_found and is_noted else 0
        training.is_trained = True
        if is_noted:
            self.waiting.insert(0, ended.model)

    def goes_on_or_is_given_up(self, ended: Ended, end: str, training: Begun) -> None:
        if end in (WINDOW, KILLED):
            step = int(training.checkpoint.rpartition("-")[2] or 0) + 10
            training.checkpoint, training.stalled = f"step-{step:08d}", 0
        else:
            training.stalled += 1
        is_given_up = training.stalled >= STALLED and end in (FAULT, EMPTY_WINDOW)
        code = 65 if is_given_up and end == EMPTY_WINDOW else {WINDOW: 0, EMPTY_WINDOW: 0, FAULT: 78}.get(end)
        assert ended.code == (-9 if code is None else code), ended.said
        if is_given_up:
            self.given_up.add(ended.model)
        else:
            self.waiting.insert(0, ended.model)

    def only_the_gate_moves_the_champion(
        self, ended: Ended, before: dict[str, Any] | None, made: dict[str, dict[str, Any]]
    ) -> None:
        now = self.pointer("champion")
        bits = self.nights.bits
        if ended.code == 0 and before and bits.get(ended.model, 99.0) < bits[before["key"]]:
            assert now is not None and now["key"] == ended.model, "a better one is served"
        history = sorted((self.root / f"pointers/{CHANNEL}/history").glob("*.json"))
        if now is None or (before and now["key"] == before["key"]):
            assert before is None or now == before
            return
        last = json.loads(history[-1].read_text(encoding="utf-8"))
        assert now["key"] == ended.model and last["model"]["key"] == now["key"]
        manifest = made[f"promote/{last['verdict']['key']}"]
        files = self.root / f"cas/promote/{last['verdict']['key']}/{manifest['attempt']}"
        assert json.loads((files / "verdict.json").read_text(encoding="utf-8"))["outcome"] == "promoted"
        if before:
            assert bits[now["key"]] < bits[before["key"]], "it is better"

    def learns_no_text_that_it_must_not(self, ended: Ended, made: dict[str, dict[str, Any]]) -> None:
        """What a model is trained on: neither evaluation texts, however they came, nor what is taken down."""
        if not ended.model or f"train/{ended.model}" not in made:
            return
        curate = self.curated(ended.model, made)
        if ended.worked is not None:
            assert not self.learned(ended.model, made) & self.down
        if curate in self.clean:
            return
        learned = {folded(row["text"]) for row in self.rows("curate", curate, "train")}
        kept = {folded(row["text"]) for row in self.evaluation_texts()}
        assert learned and kept and not learned & kept
        self.clean.add(curate)

    def all_that_is_given_up_is_loud(self, ended: Ended) -> None:
        """In its log, with the command that takes it up again; and nothing else is given up."""
        record = read_unfinished(self.store, CHANNEL)
        given_up = {one.key for one in record.set_aside if one.state == GIVEN_UP}
        for key in given_up - set(self.commands):
            assert f"train/{key[:12]}" in ended.said and "is given up" in ended.said.replace("\n", " ")
            found = re.search(
                rf"yanmo channel unfinished --resume train/{key[:12]}\S* --store \S+ --channel \w+",
                ended.said,
            )
            assert found, ended.said
            self.commands[key] = found[0]
        assert self.given_up <= given_up
        assert [one.key for one in record.open] == self.waiting, ended.said
        assert {one.state for one in record.set_aside} <= {GIVEN_UP, LEFT, OUTDATED}

    def learned(self, key: str, made: dict[str, dict[str, Any]]) -> set[str]:
        """Ids of the training texts of a model."""
        return {row["id"] for row in self.rows("curate", self.curated(key, made), "train")}

    def curated(self, key: str, made: dict[str, dict[str, Any]]) -> str:
        """Key of the documents that a model was made of."""
        name = made[f"train/{key}"]["inputs"]["token_cache"]["key"]
        for stage in ("tokenize", "balance"):
            name = made[f"{stage}/{name}"]["inputs"]["documents"]["key"]
        return str(name)

    def pointer(self, name: str) -> dict[str, Any] | None:
        path = self.root / f"pointers/{CHANNEL}/{name}.json"
        return dict(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else None

    def evaluation_texts(self) -> list[dict[str, Any]]:
        pinned = self.pointer("evaluation_set")
        return self.rows("evaluation_set", pinned["key"], "test") if pinned else []

    def rows(self, stage: str, key: str, split: str) -> list[dict[str, Any]]:
        paths: Iterator[Path] = (self.root / "cas" / stage / key).glob(f"*/{split}-*.parquet")
        return [row for path in paths for row in pq.read_table(path).to_pylist()]

    def manifests(self) -> dict[str, dict[str, Any]]:
        """`stage/key` -> manifest of every output of the store, read by json alone."""
        found: Iterator[Path] = self.root.glob("cas/*/*/MANIFEST.json")
        return {"/".join(path.parts[-3:-1]): json.loads(path.read_text(encoding="utf-8")) for path in found}
