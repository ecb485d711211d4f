"""`yanmo cache diff`: compares two token caches."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np

from yanmo.common.plain_json import json_value
from yanmo.formats.token_cache import TOKENIZER
from yanmo.store.objects import ObjectStore
from yanmo.store.output import Output
from yanmo.tools.cache.open_cache import CachedDocuments
from yanmo.tools.cache.options import CacheDiffOptions
from yanmo.tools.store.find import find, print_json
from yanmo.tools.store.show import described

_MOST = 10


def run(store: ObjectStore, options: CacheDiffOptions) -> int:
    first, second = (
        find(store, each, "tokenize", channel=options.channel) for each in (options.a, options.b)
    )
    same = first.content_digest == second.content_digest
    fields = list(_fields(first, second))
    shards = list(_shards(first, second))
    documents = {} if same else _documents(CachedDocuments(first), CachedDocuments(second))
    if options.json:
        print_json({"same_content": same, "fields": fields, "shards": shards, "documents": documents})
        return 0
    print(f"A  {first.manifest.stage}/{first.manifest.key}  made {first.manifest.created_at}")
    print(f"B  {second.manifest.stage}/{second.manifest.key}  made {second.manifest.created_at}")
    print("the same content" if same else "different content")
    for name, left, right in fields:
        print(f"  {name}: {_short(left)} / {_short(right)}")
    _print_some("input files", shards)
    for what, ids in documents.items():
        _print_some(f"documents {what}", ids)
    return 0


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 100 else text[:100] + "..."


def _print_some(title: str, lines: list[str]) -> None:
    if lines:
        print(f"{title}: {len(lines)}")
        for line in lines[:_MOST]:
            print(f"  {line}")
        if len(lines) > _MOST:
            print(f"  and {len(lines) - _MOST} more (--json)")


def _fields(first: Output, second: Output) -> Iterator[tuple[str, Any, Any]]:
    """Each field that differs: its name, and both values."""
    a, b = first.manifest, second.manifest
    rows: list[tuple[str, Any, Any]] = [("revision", a.revision, b.revision)]
    for name in sorted(a.options.keys() | b.options.keys()):
        rows.append((f"option {name}", a.options.get(name, "absent"), b.options.get(name, "absent")))
    rows.append(("corpus", described(a.inputs.get("documents")), described(b.inputs.get("documents"))))
    for name in ("documents", "tokenizer", "dictionary", "vocab_size"):
        rows.append((f"digest of {name}", a.metadata.get(name), b.metadata.get(name)))
    if a.metadata.get(TOKENIZER) != b.metadata.get(TOKENIZER):
        rows += _of_tokenizers(first.part(TOKENIZER), second.part(TOKENIZER))
    for kind in ("documents", "tokens", "characters"):
        for split in sorted(a.counts.get(kind, {}).keys() | b.counts.get(kind, {}).keys()):
            left, right = (m.counts.get(kind, {}).get(split, {}) for m in (a, b))
            rows.append((f"{kind} in {split}", sum(left.values()), sum(right.values())))
            rows += [
                (f"{kind} in {split}, {genre}", left.get(genre, 0), right.get(genre, 0))
                for genre in sorted(left.keys() | right.keys())
            ]
    yield from ((name, left, right) for name, left, right in rows if left != right)


def _of_tokenizers(first: Output, second: Output) -> Iterator[tuple[str, Any, Any]]:
    """In what two tokenizers differ: their files, and the pieces that only one of them has."""
    files = [{entry.path: entry.sha256[:16] for entry in one.entries()} for one in (first, second)]
    for name in sorted(files[0].keys() | files[1].keys()):
        yield f"tokenizer file {name}", files[0].get(name, "absent"), files[1].get(name, "absent")
    pieces = [_pieces(one) for one in (first, second)]
    only = [sorted(pieces[k].keys() - pieces[1 - k].keys()) for k in (0, 1)]
    for what, chosen in (("number", len), ("beginning", lambda found: " ".join(found[:_MOST]))):
        yield f"pieces in one only, {what}", chosen(only[0]), chosen(only[1])
    moved = sum(pieces[0][piece] != pieces[1][piece] for piece in pieces[0].keys() & pieces[1].keys())
    yield "pieces in both with another id or score", moved, 0


def _pieces(tokenizer: Output) -> dict[str, tuple[int, Any]]:
    model = json_value(tokenizer.path("tokenizer.json").read_text(encoding="utf-8"))["model"]
    vocabulary = model["vocab"]
    if isinstance(vocabulary, dict):  # BPE
        return {piece: (number, None) for piece, number in vocabulary.items()}
    return {piece: (number, score) for number, (piece, score) in enumerate(vocabulary)}


def _shards(first: Output, second: Output) -> Iterator[str]:
    """Input files that only one of the caches was made from, in words."""
    left, right = (
        {one["documents"]: one["sha256"] for one in output.manifest.metadata.get("shards", [])}
        for output in (first, second)
    )
    gone, new = set(left.values()) - set(right.values()), set(right.values()) - set(left.values())
    for name in sorted(left.keys() | right.keys()):
        a, b = left.get(name), right.get(name)
        if a in gone and b in new:
            yield f"{name}: changed, {a[:12]} / {b[:12]}" if a and b else name
        elif a in gone:
            yield f"{name}: only in A"
        elif b in new:
            yield f"{name}: only in B"


def _documents(a: CachedDocuments, b: CachedDocuments) -> dict[str, list[str]]:
    """Ids of documents by what became of them, those without any left out."""
    places = [_places(one) for one in (a, b)]
    found: dict[str, list[str]] = {
        "only in A": sorted(places[0].keys() - places[1].keys()),
        "only in B": sorted(places[1].keys() - places[0].keys()),
        "in another split": [],
        "of another genre": [],
        "with other tokens": [],
    }
    for name in sorted(places[0].keys() & places[1].keys()):
        left, right = places[0][name], places[1][name]
        (split, index, row), (other_split, other, other_row) = a.place(left), b.place(right)
        if split != other_split:
            found["in another split"].append(name)
        if a.cache.genres[int(index.genre[row])] != b.cache.genres[int(other.genre[other_row])]:
            found["of another genre"].append(name)
        same_spans = index.loss_spans.get(row) == other.loss_spans.get(other_row)
        if not same_spans or not np.array_equal(a.ids_of(left), b.ids_of(right)):
            found["with other tokens"].append(name)
    return {what: ids for what, ids in found.items() if ids}


def _places(documents: CachedDocuments) -> dict[str, int]:
    """Document id -> number."""
    names = (str(one) for _, index in documents.splits for one in index.ids)
    return {name: number for number, name in enumerate(islice(names, len(documents)))}
