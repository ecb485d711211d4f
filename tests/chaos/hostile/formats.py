"""Every file that a person gives, in every format, damaged in many ways.

A door is a file of one format at one option. A file of which nothing is left is refused, by its name; one
that is hurt is refused too, or the rest of it is right. Nothing that a file holds is mended by trying
again, so 75 is never right here; only an error of the disk below it (EIO) may pass. Odd records, encodings
and what is packed wrongly: tests/components/curate/sources/.
"""

from __future__ import annotations

import csv
import io
import json
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import zstandard

from chaos.hostile import damages
from chaos.hostile.cases import Situation
from chaos.hostile.commands import COMMANDS
from chaos.hostile.damages import Bytes
from chaos.hostile.rule import DATA, RETRY, USAGE, Expected
from chaos.hostile.store import Store
from chaos.start import CHANNEL

STOP_AFTER = 15.0
AS_IT_IS = "as it is"
"""No damage at all: the door is one."""
_ANY = (0, USAGE, DATA)
_REFUSED = (USAGE, DATA)
_OPEN = ("--max-filter-share=1",)


@dataclass(frozen=True)
class Door:
    """A file that a command reads."""

    name: str
    file: str
    """Its name below in/."""
    argv: tuple[str, ...]
    good: Callable[[Store], bytes]
    """What it should hold."""
    kinds: tuple[Mapping[str, Bytes], ...]
    """The damages that are tried; those in `damages.DESTROYED` and INSTEAD always are."""
    may_be: tuple[str, ...] = ()
    """Damages that leave a file that is right all the same, with the reason beside the door."""

    @property
    def names(self) -> tuple[str, ...]:
        """What a message names."""
        return (
            self.file.rpartition("/")[2],
            *(word.partition("=")[0] for word in self.argv if f"@in/{self.file}" in word and "=" in word),
        )


def situations(seed: int, store: Store) -> Iterator[Situation]:
    """Every door with every damage."""
    for door in DOORS:
        yield _case(door, AS_IT_IS, (0,), _put(door, lambda data, draw: data, seed))
        for kind in (damages.DESTROYED, *door.kinds):
            for label, how in kind.items():
                refused = kind is damages.DESTROYED and label not in door.may_be
                yield _case(door, label, _REFUSED if refused else _ANY, _put(door, how, seed))
        for label, place in damages.INSTEAD.items():
            codes = _ANY if label in door.may_be else (*_REFUSED, *((RETRY,) if label == "memory" else ()))
            yield _case(door, label, codes, _instead(door, place))


def _put(door: Door, how: Bytes, seed: int) -> Callable[[Store], None]:
    def prepare(store: Store) -> None:
        draw = random.Random(f"{seed}/{door.name}")
        damages.put(store.inputs / door.file, how(door.good(store), draw))

    return prepare


def _instead(door: Door, place: Callable[[Path], None]) -> Callable[[Store], None]:
    def prepare(store: Store) -> None:
        damages.clear(store.inputs / door.file)
        place(store.inputs / door.file)

    return prepare


def _case(door: Door, label: str, codes: tuple[int, ...], prepare: Callable[[Store], None]) -> Situation:
    parts = COMMANDS[door.argv[0] if door.argv[0] in COMMANDS else "-".join(door.argv[:2])].commits

    def build(store: Store) -> None:
        (store.inputs / door.file).parent.mkdir(parents=True, exist_ok=True)
        prepare(store)

    expected = Expected(codes, door.names, parts)
    return Situation(f"{door.name}/{label}", door.argv, expected, build, stop_after=STOP_AFTER)


def _documents(store: Store) -> bytes:
    return (store.inputs / "documents.jsonl").read_bytes()


def _texts(store: Store) -> bytes:
    return "\n\n".join(json.loads(line)["text"] for line in _documents(store).splitlines()).encode() + b"\n"


def _page(store: Store) -> bytes:
    """One document, without remarks such as （表略）, for which it would be dropped as a whole."""
    texts = [text for text in _texts(store).decode().split("\n\n") if "略）" not in text]
    return "\n\n".join(("---\ntitle: 春江\n---", "# 春江", *texts)).encode()


def _table(store: Store) -> bytes:
    out = io.StringIO()
    rows = csv.writer(out)
    rows.writerow(["text"])
    rows.writerows([json.loads(line)["text"]] for line in _documents(store).splitlines())
    return out.getvalue().encode()


def _few(count: int) -> Callable[[Store], bytes]:
    return lambda store: b"\n".join(_documents(store).splitlines()[:count]) + b"\n"


def _model(name: str) -> Callable[[Store], bytes]:
    return lambda store: (store.template / store.name_of("train") / name).read_bytes()


def _pointer(name: str) -> Callable[[Store], bytes]:
    return lambda store: (store.template / f"pointers/{CHANNEL}/{name}.json").read_bytes()


def _text(text: str) -> Callable[[Store], bytes]:
    return lambda store: text.encode()


def _curate(file: str, *more: str) -> tuple[str, ...]:
    flags = [f for f in COMMANDS["curate"].flags if not f.startswith(("--sources", "--max-malformed"))]
    return ("curate", *flags, f"--sources=@in/{file}", "--default-genre=诗", *_OPEN, *more)


def _with(command: str, *more: str) -> tuple[str, ...]:
    """A command line with options in the place of the same ones."""
    names = tuple(f"{word.partition('=')[0]}=" for word in more)
    return (*COMMANDS[command].words, *(f for f in COMMANDS[command].flags if not f.startswith(names)), *more)


_TEXT = (damages.OF_TEXT, damages.HURT)
_COMMENTS = ("empty", "spaces", "the null device")
"""An empty file of ids or options says that there are none."""
_BYTES = ("a byte", "an error page", "a pointer of git-lfs", "nulls")
"""Text of some sort: any line of a text file may be a document, as may a field of a table or a word."""


def _parquet(store: Store) -> bytes:
    rows = [json.loads(line) for line in _documents(store).splitlines()]
    out = io.BytesIO()
    pq.write_table(pa.Table.from_pylist([{"text": row["text"], "genre": row["genre"]} for row in rows]), out)
    return out.getvalue()


def _zst(store: Store) -> bytes:
    return zstandard.compress(_documents(store))


def _array(store: Store) -> bytes:
    return b"[%s]" % b",\n".join(_documents(store).splitlines())


_CONFIG = "seed: 5\nmax_repeats: 3\n"
_SYNONYMS = _with("balance", "--synonyms=@in/s.txt", "--augment=词:synonym=0.5")
_BENCHMARKS = _curate("documents.jsonl", "--benchmarks=@in/b.jsonl")
_EXCLUDE, _PINNED = (
    _curate("documents.jsonl", word) for word in ("--exclude=@in/ids.txt", "--evaluation-set=@in/r.json")
)
_MODEL = COMMANDS["model-import"].line()
DOORS = (
    Door("jsonl", "x.jsonl", _curate("x.jsonl"), _documents, _TEXT),
    Door("jsonl.zst", "x.jsonl.zst", _curate("x.jsonl.zst"), _zst, (damages.HURT,)),
    Door("txt", "x.txt", _curate("x.txt"), _texts, _TEXT, _BYTES),
    Door("txt by line", "x.txt", _curate("x.txt", "--text-layout=line"), _texts, _TEXT, _BYTES),
    Door("json", "x.json", _curate("x.json"), _array, _TEXT, _BYTES),
    Door("csv", "x.csv", _curate("x.csv"), _table, _TEXT, _BYTES),
    Door("md", "x.md", _curate("x.md", "--overlap-characters=0"), _page, _TEXT, _BYTES),
    Door("parquet", "x.parquet", _curate("x.parquet"), _parquet, (damages.HURT,)),
    Door("benchmark jsonl", "b.jsonl", _BENCHMARKS, _few(9), _TEXT, ("nulls",)),
    Door("exclude", "ids.txt", _EXCLUDE, _text("0" * 64 + "\n"), _TEXT, _COMMENTS),
    Door("config", "o.yaml", _with("balance", "--config=@in/o.yaml"), _text(_CONFIG), _TEXT,
         (*_COMMENTS, "nulls")),
    Door("reference", "r.json", _with("balance", "--documents=@in/r.json"), _pointer("curate"), _TEXT),
    Door("evaluation set", "r.json", _PINNED, _pointer("evaluation_set"), _TEXT),
    Door("synonyms", "s.txt", _SYNONYMS, _text("春 秋\n山 水\n"), _TEXT, _BYTES),
    Door("dictionary", "d.txt", _with("tokenize", "--user-dictionary=@in/d.txt"),
         _text("春江 100 n\n明月\n"), _TEXT, (*_BYTES, *_COMMENTS)),
    Door("tokenizer.json", "model/tokenizer.json", COMMANDS["tokenizer-import"].line(),
         _model("tokenizer.json"), _TEXT),
    Door("model config.json", "model/config.json", _MODEL, _model("config.json"), _TEXT),
    Door("model genres.json", "model/genres.json", _MODEL, _model("genres.json"), _TEXT, ("nothing",)),
    Door("model weights", "model/model.safetensors", _MODEL, _model("model.safetensors"), (damages.HURT,)),
)  # fmt: skip
