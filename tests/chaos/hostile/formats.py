"""Every file that a person gives, in every format, damaged in every way.

A door is a file of one format at one option. A file of which nothing is left is refused, by its name; one
that is hurt is refused too, or the rest of it is right. Nothing that a file holds is mended by trying
again, so 75 is never right here; only an error of the disk below it (EIO) may pass.
"""

from __future__ import annotations

import csv
import io
import json
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from chaos.hostile import damages, records
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
    """What it should hold; for a packed file, unpacked."""
    kinds: tuple[Mapping[str, Bytes], ...]
    """The damages that are tried; those in `damages.DESTROYED` and INSTEAD always are."""
    may_be: tuple[str, ...] = ()
    """Damages that leave a file that is right all the same, with the reason beside the door."""
    pack: Bytes = lambda data, draw: data
    """From what `good` gives to the file, for the damages of a whole file."""

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
        yield _of_bytes(door, AS_IT_IS, (lambda data, draw: data, True), seed)
        for label, damage in _damages(door).items():
            yield _of_bytes(door, label, damage, seed)
        for label, place in damages.INSTEAD.items():
            yield _instead(door, label, place)
    yield from _records(seed)


def _damages(door: Door) -> dict[str, tuple[Bytes, bool]]:
    """Label -> damage, and whether it gets the packed file."""
    found: dict[str, tuple[Bytes, bool]] = {label: (how, True) for label, how in damages.DESTROYED.items()}
    for kind in door.kinds:
        found |= {label: (how, kind is damages.HURT) for label, how in kind.items()}
    return found


def _of_bytes(door: Door, label: str, how: tuple[Bytes, bool], seed: int) -> Situation:
    damage, of_file = how

    def prepare(store: Store) -> None:
        draw = random.Random(f"{seed}/{door.name}/{label}")
        good = door.good(store)
        damages.put(store.inputs / door.file, damage(door.pack(good, draw) if of_file else good, draw))

    refused = label in damages.DESTROYED and label not in door.may_be
    codes = (0,) if label == AS_IT_IS and door.name != "pipeline" else _REFUSED if refused else _ANY
    return _case(door, label, codes, prepare)


def _instead(door: Door, label: str, place: Callable[[Path], None]) -> Situation:
    def prepare(store: Store) -> None:
        path = store.inputs / door.file
        damages.clear(path)
        place(path)

    codes = _ANY if label in door.may_be else _REFUSED
    return _case(door, label, (*codes, RETRY) if label == "memory" else codes, prepare)


def _case(door: Door, label: str, codes: tuple[int, ...], prepare: Callable[[Store], None]) -> Situation:
    parts = COMMANDS[door.argv[0] if door.argv[0] in COMMANDS else "-".join(door.argv[:2])].commits
    expected = Expected(codes, door.names, parts)

    def build(store: Store) -> None:
        (store.inputs / door.file).parent.mkdir(parents=True, exist_ok=True)
        prepare(store)

    return Situation(f"{door.name}/{label}", door.argv, expected, build, stop_after=STOP_AFTER)


def _records(seed: int) -> Iterator[Situation]:
    """Odd records and lines in a JSONL file: one among good ones, and all of them."""
    door = Door("records", "odd.jsonl", _curate("odd.jsonl", "--max-malformed-share=0.01"), _documents, ())
    for label, record in records.RECORDS.items():
        for many in (False, True):

            def prepare(store: Store, record: object = record, many: bool = many) -> None:
                data = records.with_record(_documents(store), record, all_of_them=many)
                damages.put(store.inputs / door.file, data)

            heavy = many and (
                "long" in label or "many" in label or "one line" in label or "combining" in label
            )
            if not heavy:
                yield _case(door, f"{label}{', all of them' if many else ''}", _ANY, prepare)
    for label, line in records.LINES.items():

        def prepare_line(store: Store, line: bytes = line) -> None:
            damages.put(store.inputs / door.file, line + b"\n" + _documents(store))

        yield _case(door, label, _ANY, prepare_line)


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


def _packs(form: str) -> Bytes:
    return lambda data, draw: damages.PACK[form](data)


_TEXT_KINDS = (damages.OF_TEXT, damages.HURT)
_COMMENTS = ("empty", "spaces", "only BOM", "the null device")
"""An empty file of ids or options says that there are none."""
_BYTES = ("a byte", "an error page", "a pointer of git-lfs", "nulls", "PDF")
"""Text of some sort: any line of a text file may be a document, as may a field of a table or a word."""

DOORS = (
    Door("jsonl", "x.jsonl", _curate("x.jsonl"), _documents, _TEXT_KINDS),
    *(
        Door(
            f"jsonl.{form}",
            f"x.jsonl.{form}",
            _curate(f"x.jsonl.{form}"),
            _documents,
            (damages.of_packed(form),),
            (),
            _packs(form),
        )
        for form in damages.PACK
    ),
    Door("txt", "x.txt", _curate("x.txt"), _texts, _TEXT_KINDS, _BYTES),
    Door("txt by line", "x.txt", _curate("x.txt", "--text-layout=line"), _texts, _TEXT_KINDS, _BYTES),
    *(
        Door(form, f"x.{form}", _curate(f"x.{form}"), made, _TEXT_KINDS, _BYTES)
        for form, made in (
            ("json", lambda store: b"[%s]" % b",\n".join(_documents(store).splitlines())),
            ("csv", lambda store: _table(store)),
        )
    ),
    Door(
        "md",
        "x.md",
        _curate("x.md", "--overlap-characters=0"),
        lambda store: _page(store),
        _TEXT_KINDS,
        _BYTES,
    ),
    Door(
        "parquet",
        "x.parquet",
        _curate("x.parquet"),
        _documents,
        (records.PARQUET, damages.HURT),
        (),
        lambda data, draw: records.as_parquet(data),
    ),
    Door(
        "benchmark jsonl",
        "b.jsonl",
        _curate("documents.jsonl", "--benchmarks=@in/b.jsonl"),
        _few(9),
        _TEXT_KINDS,
        ("nulls",),
    ),
    Door(
        "exclude",
        "ids.txt",
        _curate("documents.jsonl", "--exclude=@in/ids.txt"),
        _text("0" * 64 + "\n"),
        _TEXT_KINDS,
        _COMMENTS,
    ),
    Door(
        "config",
        "o.yaml",
        _with("balance", "--config=@in/o.yaml"),
        _text("seed: 5\nmax_repeats: 3\n"),
        _TEXT_KINDS,
        (*_COMMENTS, "nulls"),
    ),
    Door("reference", "r.json", _with("balance", "--documents=@in/r.json"), _pointer("curate"), _TEXT_KINDS),
    Door(
        "evaluation set",
        "r.json",
        _curate("documents.jsonl", "--evaluation-set=@in/r.json"),
        _pointer("evaluation_set"),
        _TEXT_KINDS,
    ),
    Door(
        "synonyms",
        "s.txt",
        _with("balance", "--synonyms=@in/s.txt", "--augment=词:synonym=0.5"),
        _text("春 秋\n山 水\n"),
        _TEXT_KINDS,
        _BYTES,
    ),
    Door(
        "dictionary",
        "d.txt",
        _with("tokenize", "--user-dictionary=@in/d.txt"),
        _text("春江 100 n\n明月\n"),
        _TEXT_KINDS,
        (*_BYTES, *_COMMENTS),
    ),
    Door(
        "tokenizer.json",
        "model/tokenizer.json",
        COMMANDS["tokenizer-import"].line(),
        _model("tokenizer.json"),
        _TEXT_KINDS,
    ),
    *(
        Door(f"model {name}", f"model/{name}", COMMANDS["model-import"].line(), _model(name), kinds, may_be)
        for name, kinds, may_be in (
            ("config.json", _TEXT_KINDS, ()),
            ("genres.json", _TEXT_KINDS, ("nothing",)),
            ("tokenizer_config.json", _TEXT_KINDS, ("nothing",)),
            ("model.safetensors", (damages.HURT,), ()),
        )
    ),
    Door(
        "pipeline",
        "p.yaml",
        ("run", "--pipeline=@in/p.yaml", "--store=@store"),
        _text("components: {}\nroot: {}\n"),
        _TEXT_KINDS,
    ),
)
