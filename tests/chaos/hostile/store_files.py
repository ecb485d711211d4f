"""Every file of a store damaged, missing, exchanged, for each command that reads it.

Which command reads what is not written down here: each command runs once on the whole store with an audit
hook, which tells every file that it opens there. A command that meets damage ends with 65 and names what it
met, or it did not need it: then its result is that of an undisturbed run.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from chaos.events import Listener, normalized
from chaos.hostile import damages, engine
from chaos.hostile.cases import Situation
from chaos.hostile.commands import COMMANDS, Command
from chaos.hostile.engine import Ended
from chaos.hostile.rule import DATA, ENVIRONMENT, RETRY, Expected
from chaos.hostile.store import Store
from chaos.start import CHANNEL

STOP_AFTER = 30.0
OTHER_KEY = {
    "curate": "--min-han-characters=9",
    "balance": "--seed=1",
    "tokenize": "--min-character-count=2",
    "train": "--steps=6",
    "evaluate": "--seed=1",
    "promote": "--seed=1",
}
"""Stage -> an option with which it has something to make."""
_LEFT_OUT = (
    "run",
    "compile",
    "promote-rollback",
    "tokenizer-import",
    "model-import",
    "submit",
    "rerun",
    "doctor",
)
"""Commands that read no more of a store than others do."""
_MANY, _OF_A_SORT = 12, 2
_CONTENT = ("empty", "an error page", "half", "a bit", "zeros after it")
"""What is done to files whose bytes are covered by a sha256: it is the same to it how they differ."""
_VERIFIED = ("manifest", "content", "pointer", "champion")
"""Sorts of files of which `yanmo store verify` finds each other byte."""
_HEX = re.compile(r"[0-9a-f]{12,64}")
JSON: dict[str, bytes] = {
    "no keys": b"{}",
    "null": b"null",
    "list": b"[]",
    "deep": b"[" * 100_000,
    "long": b" " * 100_000_000,
}
_CHANGES: dict[str, Callable[[Any], Any]] = {
    "is gone": lambda value: ...,
    "is null": lambda value: None,
    "is a list": lambda value: [value],
    "is another text": lambda value: "x" * 64,
    "is above": lambda value: "../../../etc/passwd",
    "is steering": lambda value: "a\x1b[31m\u202eb",
}
"""What may be wrong with one key of a JSON document."""


@dataclass(frozen=True)
class Reader:
    """A command, what it reads, and what it makes of a store that is whole."""

    command: Command
    more: tuple[str, ...]
    reads: tuple[str, ...]
    """Kinds of files."""
    digests: dict[str, str]
    """Pointer -> content digest after it."""

    @property
    def name(self) -> str:
        """For names of cases."""
        return self.command.name + ("" if self.more or not self.command.is_stage else " again")


def kind_of(name: str) -> str:
    """A file's name without what is drawn."""
    return "/".join(_HEX.sub("*", part) for part in name.split("/"))


def situations(seed: int, store: Store, names: Collection[str] = ()) -> Iterator[Situation]:
    """Each reader with each kind of file that it reads and each damage of it.

    A command that reads all of a store meets a few files of each sort, drawn by the seed: one manifest is
    read as another is.

    Args:
        names: commands that are tried; all by default.
    """
    files = {
        p.relative_to(store.template).as_posix(): p for p in sorted(store.template.rglob("*")) if p.is_file()
    }
    for reader in readers(store, files, names):
        draw = random.Random(f"{seed}/{reader.name}")
        kinds = reader.reads
        if len(kinds) > _MANY:
            sorts = {sort: [k for k in kinds if _sort(k) == sort] for sort in map(_sort, kinds)}
            kinds = tuple(
                k for found in sorts.values() for k in draw.sample(found, min(_OF_A_SORT, len(found)))
            )
        for kind in kinds:
            name = next(n for n in files if kind_of(n) == kind)
            yield from _of_file(reader, kind, name, files, seed)


def _sort(kind: str) -> str:
    """Files of one sort are read by the same code."""
    parts = kind.split("/")
    if parts[0] == "cas":
        return "manifest" if parts[-1] == "MANIFEST.json" else "content"
    if parts[0] == "pointers":
        return "history" if "history" in parts else "champion" if "champion" in parts[-1] else "pointer"
    return parts[-1]


def readers(store: Store, files: Mapping[str, Path], names: Collection[str] = ()) -> Iterator[Reader]:
    """Every command that reads a store, or those of these names, after one undisturbed run of each; a stage
    with something to make, and with nothing."""
    alone = Store(store.folder, store.stages)  # a folder, wherever the situations are tried
    for command in COMMANDS.values():
        if command.name in _LEFT_OUT or (names and command.name not in names):
            continue
        for more in ((OTHER_KEY[command.name],), ()) if command.is_stage else ((),):
            yield Reader(command, more, *_look_at(command.line(*more), alone, files))


def _look_at(
    argv: tuple[str, ...], store: Store, files: Mapping[str, Path]
) -> tuple[tuple[str, ...], dict[str, str]]:
    """Which kinds of files a command opens of a whole store, and what the pointers hold after it."""
    store.renew()
    with Listener(store.folder / "witness", (str(store.store),)) as listener:
        ended = engine.run(tuple(map(store.fill, argv)), store.cwd, store.environment | listener.variables)
    assert ended.code == 0, (argv, ended.stderr)
    opened = {event.name for event in listener.events if event.kind == "open"}
    kinds = {kind_of(name) for name in files if normalized(f"/{name}") in opened}
    return tuple(sorted(kinds)), store.digests()


def _of_file(
    reader: Reader, kind: str, name: str, files: Mapping[str, Path], seed: int
) -> Iterator[Situation]:
    data = files[name].read_bytes()
    is_content, is_sealed = _sort(kind) == "content", name.startswith("cas/")
    for label, how in {**damages.DESTROYED, **damages.HURT}.items():
        if not is_content or label in _CONTENT:
            draw = random.Random(f"{seed}/{kind}/{label}")
            yield _case(reader, kind, name, label, how(data, draw), data)
    if not is_content and name.endswith(".json"):
        for label, body in JSON.items():
            yield _case(reader, kind, name, label, body, data)
        value = json.loads(data)
        for key in list(value if isinstance(value, dict) else ())[: 2 if is_sealed else None]:
            for label, change in _CHANGES.items():
                new = {k: change(v) if k == key else v for k, v in value.items()}
                body = json.dumps({k: v for k, v in new.items() if v is not ...}).encode()
                yield _case(reader, kind, name, f"{key} {label}", body, data)
    for label, place in damages.INSTEAD.items():
        yield _case(reader, kind, name, label, place, data)
    for other in _others(files, kind):
        yield _case(reader, kind, name, f"is {kind_of(other)}", files[other].read_bytes(), data)


def _others(names: Iterable[str], kind: str) -> list[str]:
    """Two files that somebody may have put there: of the same folder, and of the same name elsewhere."""
    folder, _, base = kind.rpartition("/")
    beside = [n for n in names if kind_of(n).rpartition("/")[0] == folder and kind_of(n) != kind]
    elsewhere = [n for n in names if kind_of(n).rpartition("/")[2] == base and kind_of(n) != kind]
    return [*beside[:1], *elsewhere[:1]]


def _case(
    reader: Reader, kind: str, name: str, label: str, put: bytes | Callable[[Path], None], whole: bytes
) -> Situation:
    def prepare(store: Store) -> None:
        path = store.store / name
        if isinstance(put, bytes):
            damages.put(path, put)
        else:
            damages.clear(path)
            put(path)

    def check(store: Store, ended: Ended) -> list[str]:
        """Where it ended well, what it made is what it makes of a whole store."""
        if ended.code or ended.stopped or name.startswith("pointers/"):
            return []
        found = store.digests()
        return [f"another {n}, and no word" for n, d in reader.digests.items() if found.get(n) != d]

    codes = {"memory": (0, DATA, RETRY), "a loop": (0, DATA, ENVIRONMENT)}.get(label, (0, DATA))
    if reader.name == "store-verify" and isinstance(put, bytes) and put != whole and _sort(kind) in _VERIFIED:
        codes = (DATA,)
    commits = reader.command.commits
    if name.startswith("pointers/") and reader.command.is_stage:
        # The output is committed before its pointer is moved: it is whole, and the next run finds it.
        commits = (*commits, reader.command.name)
    names = () if label == "memory" else _names(name)
    expected = Expected(codes, names, commits, reader.command.says_on_stdout)
    what = f"{reader.name}/{kind.replace('/', ':')}/{label.replace('/', ':')}"
    return Situation(
        what, reader.command.line(*reader.more), expected, prepare, stop_after=STOP_AFTER, check=check
    )


def _names(name: str) -> tuple[str, ...]:
    """What a message may call a file of the store."""
    parts = name.split("/")
    if parts[0] == "cas":
        return (
            f"{parts[1]}/{parts[2][:12]}",
            f"{parts[1]}/{parts[2]}",
            parts[-1] if len(parts) > 4 else name,
        )
    return (name, f"channel {CHANNEL!r}", "/".join(parts[1:]).removesuffix(".json"), parts[-1])
