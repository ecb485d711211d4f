"""`yanmo store lineage`: says what rests on what."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from yanmo.common.errors import DataError
from yanmo.common.logs import Progress
from yanmo.formats.training_text import is_trained_on, rows_with
from yanmo.store.objects import ObjectStore
from yanmo.store.output import KEY, Output, find_output
from yanmo.tools.store.chain import edges
from yanmo.tools.store.find import find, print_json
from yanmo.tools.store.inventory import KeyName, take
from yanmo.tools.store.options import LineageOptions
from yanmo.tools.store.pointed import read_all
from yanmo.tools.store.show import described

log = logging.getLogger(__name__)


Holders = dict[KeyName, dict[str, int]]
"""Where one document is: output -> file -> rows."""


class Web:
    """All committed outputs of a store and how they rest on each other."""

    def __init__(self, store: ObjectStore) -> None:
        inventory = take(store, leftovers=False)
        self.store = store
        self.outputs: dict[KeyName, Output] = {}
        self.users: dict[KeyName, list[tuple[KeyName, str]]] = defaultdict(list)
        """Output -> what was made from it, and as which input or part it was used."""
        self.pointers: dict[KeyName, list[str]] = defaultdict(list)
        for named in read_all(store, inventory.pointers):
            if named.by not in (known := self.pointers[named.reference.stage, named.reference.key]):
                known.append(named.by)
        for name, folder in sorted(inventory.keys.items()):
            found = find_output(store, *name) if folder.manifest else None
            if found:
                self.outputs[name] = found
                for edge in edges(found.manifest):
                    self.users[edge.reference.stage, edge.reference.key].append((name, edge.label))

    def down(self, names: Sequence[KeyName]) -> Iterator[tuple[KeyName, str]]:
        """Return what rests on `names`, nearest first, each once, and how."""
        seen, waiting = set(names), list(names)
        while waiting:
            name = waiting.pop(0)
            for user, label in self.users[name]:
                if user not in seen:
                    seen.add(user)
                    waiting.append(user)
                    yield user, f"{label} = {_short(name)}"

    def shown(self, name: KeyName) -> str:
        """An output and the pointers that name it."""
        pointers = ", ".join(self.pointers.get(name, ()))
        return _short(name) + (f"  [{pointers}]" if pointers else "")


_LEARNED = {
    "directly": "models that learned it",
    "by_start": "models that began from one that learned it",
    "tokenizers": "tokenizers built from it",
    "evaluation_sets": "evaluation sets that hold it",
}


@dataclass
class Learned:
    """What became of one text."""

    directly: list[KeyName] = field(default_factory=list)
    """Models whose own training text holds it, or a copy of it."""
    by_start: list[KeyName] = field(default_factory=list)
    """Models that began from one of these."""
    tokenizers: list[KeyName] = field(default_factory=list)
    evaluation_sets: list[KeyName] = field(default_factory=list)
    champions: list[str] = field(default_factory=list)
    """Channels whose champion learned it."""

    def lines(self, shown: Callable[[KeyName], str]) -> Iterator[str]:
        """As a person reads it."""
        for field_name, what in _LEARNED.items():
            names = getattr(self, field_name)
            yield f"{what}: {'none' if not names else ''}".rstrip()
            yield from (f"    {shown(name)}" for name in names)
        yield f"channels whose champion learned it: {', '.join(self.champions) or 'none'}"

    def as_json(self) -> dict[str, Any]:
        found: dict[str, Any] = {name: ["/".join(one) for one in getattr(self, name)] for name in _LEARNED}
        return {"learned": {**found, "champions": self.champions}}


def learned(web: Web, document: str, holders: Sequence[KeyName], down: Sequence[KeyName]) -> Learned:
    """Who learned `document`.

    Args:
        holders: outputs that hold it.
        down: all that rests on these.
    """
    found = Learned()
    for name in dict.fromkeys([*holders, *down]):
        if name[0] == "train" and is_trained_on(web.outputs[name], document):
            own = _cache_of(web.outputs[name])
            (found.directly if own and is_trained_on(own, document) else found.by_start).append(name)
    found.evaluation_sets = [name for name in holders if name[0] == "evaluation_set"]
    found.tokenizers = [
        name for name in down if name[0] == "tokenizer" and is_trained_on(web.outputs[name], document)
    ]
    served = {by for name in (*found.directly, *found.by_start) for by in web.pointers.get(name, ())}
    found.champions = sorted(by.partition("/")[0] for by in served if by.endswith("/champion"))
    return found


def _cache_of(model: Output) -> Output | None:
    try:
        return model.input("token_cache")
    except DataError:
        return None


def run(store: ObjectStore, options: LineageOptions) -> int:
    ids = [what for what in options.what if KEY.fullmatch(what)]
    outputs = [find(store, one, channel=options.channel) for one in options.what if not KEY.fullmatch(one)]
    web = Web(store)
    documents: list[Any] = []
    if ids:
        holders = find_documents(web, ids)
        for document in ids:
            documents.append(_document(web, document, holders[document], options.json))
    for output in outputs:
        documents.append(_output(web, output, options.json))
    if options.json:
        print_json(documents)
    return 0


def _document(web: Web, document: str, holders: Holders, as_json: bool) -> dict[str, Any]:
    names = list(holders)
    down = list(web.down(names))
    if not as_json:
        print(f"document {document}")
        print("  held by" if names else "  no output of this store holds it")
        for name in names:
            files = ", ".join(f"{file} ({rows})" for file, rows in holders[name].items())
            print(f"    {web.shown(name)}  rows in {files}")
        print("  and these rest on them" * bool(down), end="\n" * bool(down))
        for name, how in down:
            print(f"    {web.shown(name)}  {how}")
    what = learned(web, document, names, [name for name, _ in down])
    if not as_json:
        for line in what.lines(web.shown):
            print(f"  {line}")
    return {
        "document": document,
        **what.as_json(),
        "held_by": {"/".join(name): files for name, files in holders.items()},
        "rests_on_them": ["/".join(name) for name, _ in down],
    }


def _output(web: Web, output: Output, as_json: bool) -> dict[str, Any]:
    name = (output.manifest.stage, output.manifest.key)
    down = list(web.down([name]))
    up = list(_up(web, output))
    if not as_json:
        print(f"output {web.shown(name)}")
        print("  rests on")
        for text in up:
            print(f"    {text}")
        print("  and these rest on it" if down else "  nothing rests on it")
        for user, how in down:
            print(f"    {web.shown(user)}  {how}")
    return {"output": "/".join(name), "rests_on": up, "rests_on_it": ["/".join(user) for user, _ in down]}


def _up(web: Web, output: Output, depth: int = 0, seen: set[KeyName] | None = None) -> Iterator[str]:
    """The chain of an output as indented lines; what was shown once is not opened again."""
    seen = set() if seen is None else seen
    for name, value in sorted(output.manifest.inputs.items()):
        if not value:
            continue
        yield "  " * depth + f"{name} = {described(value)}"
        if "manifest_uri" not in value or (value["stage"], value["key"]) in seen:
            continue
        seen.add((value["stage"], value["key"]))
        found = web.outputs.get((value["stage"], value["key"]))
        if found:
            yield from _up(web, found, depth + 1, seen)


def find_documents(web: Web, ids: Sequence[str]) -> dict[str, Holders]:
    """Return where each of `ids` is.

    Raises:
        DataError: a file is damaged: it might hold one of them.
    """
    result: dict[str, Holders] = {document: {} for document in ids}
    files = [
        (output, entry)
        for output in web.outputs.values()
        for entry in output.entries("*.parquet")
        if not entry.path.rpartition("/")[2].startswith("tokens-")
    ]
    progress = Progress(log, "searched", sum(entry.bytes for _, entry in files), unit="B")
    for output, entry in files:
        manifest = output.manifest
        path = web.store.fetch([output.wanted(entry)])[0]
        for document, rows in rows_with(path, ids).items():
            result[document].setdefault((manifest.stage, manifest.key), {})[entry.path] = rows
        web.store.release([path])
        progress.add(entry.bytes, note=str(output))
    return result


def _short(name: KeyName) -> str:
    return f"{name[0]}/{name[1][:12]}"
