"""`yanmo cache show`: shows a token cache."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np

from yanmo.common.aligned_table import text_table
from yanmo.common.errors import UsageError
from yanmo.common.logs import human_bytes
from yanmo.common.words import plural
from yanmo.formats.packing_settings import SPLITS
from yanmo.formats.round_trip import open_tokenizer
from yanmo.formats.token_cache import TOKENIZER, TokenCache, id_type
from yanmo.store.objects import ObjectStore
from yanmo.store.output import Output
from yanmo.tools.store.find import find, print_json
from yanmo.tools.store.show import described

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from yanmo.tools.cache.command import CacheShowOptions

_MOST_IDS = 40


def run(store: ObjectStore, options: CacheShowOptions) -> int:
    output = find(store, options.what, "tokenize", channel=options.channel)
    if not options.document:
        if options.json:
            print_json(_facts(output) | {"counts": output.manifest.counts})
        else:
            _print_cache(output)
        return 0
    cache = TokenCache.open(output)
    tokenizer = open_tokenizer(cache.tokenizer.path("tokenizer.json"))
    found = _document(cache, tokenizer, options.document)
    if options.json:
        print_json(found)
    else:
        _print_document(found, tokenizer, options.ids)
    return 0


def _facts(output: Output) -> dict[str, Any]:
    """Return what a cache is, apart from its counts."""
    manifest = output.manifest
    metadata, tokenizer = manifest.metadata, manifest.references.get(TOKENIZER, {})
    files = output.entries("tokens-*.parquet")
    facts = {
        "cache": f"{manifest.stage}/{manifest.key}",
        "content": manifest.content_digest,
        "made": f"{manifest.created_at}, revision {manifest.revision}",
        "documents": f"{described(manifest.inputs.get('documents'))}, content {metadata.get('documents')}",
        "tokenizer": f"{described(tokenizer)}, content {metadata.get('tokenizer')}",
        "dictionary": metadata.get("dictionary"),
        "vocabulary": f"{metadata['vocab_size']} ids, stored as {id_type(metadata['vocab_size']).name}",
        "tokens in": f"{plural(len(files), 'file')}, {human_bytes(sum(e.bytes for e in files))}",
        "unused ids": metadata.get("unused_ids"),
        "bytes": f"{100 * metadata.get('byte_token_share', 0):.3f} % of the tokens",
    }
    return {name: value for name, value in facts.items() if value is not None}


def _print_cache(output: Output) -> None:
    for name, value in _facts(output).items():
        print(f"{name:<10} {value}")
    counts = output.manifest.counts
    rows = [("split", "genre", "documents", "tokens", "characters", "tokens/character")]
    for split, genres in counts["documents"].items():
        for genre in genres:
            documents, tokens, characters = (
                counts[name][split].get(genre, 0) for name in ("documents", "tokens", "characters")
            )
            predicted = (tokens - documents) / max(characters, 1)
            rows.append(
                (split, genre, f"{documents:,}", f"{tokens:,}", f"{characters:,}", f"{predicted:.3f}")
            )
    print()
    print("\n".join(text_table(rows)))


def _document(cache: TokenCache, tokenizer: Tokenizer, named: str) -> dict[str, Any]:
    """Return the document that a number or the beginning of an id names, `<|bos|>` and `<|eos|>` included.

    Documents are numbered in the order of the cache: train, then valid.

    Raises:
        UsageError: there is none, or several ids begin so.
    """
    splits = {name: cache.split(name) for name in SPLITS}
    ids = np.concatenate([index.ids for index in splits.values()])
    if re.fullmatch("-?[0-9]{1,15}", named):
        numbers = [range(len(ids))[int(named)]] if -len(ids) <= int(named) < len(ids) else []
    else:
        numbers = [number for number, id in enumerate(ids) if id.startswith(named)]
    if len(numbers) != 1:
        raise UsageError(
            f"--document {named[:70]}: names {plural(len(numbers), 'document')}; expected a number below "
            f"{len(ids)}, or the beginning of one id"
        )
    row, names = numbers[0], iter(splits)
    split = next(names)
    while row >= len(splits[split]):
        row, split = row - len(splits[split]), next(names)
    index = splits[split]
    begin, length = int(index.offset[row]), int(index.length[row])
    tokens = cache.tokens[int(index.shard[row])][begin : begin + length].tolist()
    return {
        "number": numbers[0],
        "id": index.ids[row],
        "split": split,
        "genre": cache.genres[int(index.genre[row])],
        "shard": int(index.shard[row]),
        "offset": begin,
        "length": length,
        "characters": int(index.characters[row]),
        "loss_spans": index.loss_spans.get(row),
        "tokens": tokens,
        "text": tokenizer.decode(tokens[1:-1], skip_special_tokens=False),
    }


def _on_a_line(token: str) -> str:
    """Return a token as it is, but a line break and the like as Python writes them: `\\n`."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in token)


def _print_document(found: dict[str, Any], tokenizer: Tokenizer, every_id: bool) -> None:
    print(
        f"document {found['number']}: {found['id']}\n"
        f"{found['split']}, {found['genre']}; {found['characters']} characters, {found['length']} tokens "
        f"from {found['offset']} of shard {found['shard']}"
        + (f"; loss on {found['loss_spans']}" if found["loss_spans"] is not None else "")
    )
    print(found["text"])
    ids = found["tokens"] if every_id else found["tokens"][:_MOST_IDS]
    pieces = [f"{_on_a_line(str(tokenizer.id_to_token(i)))}/{i}" for i in ids]
    more = found["length"] - len(ids)
    print("  " + " ".join(pieces) + (f" ... {more} more (--ids)" if more else "") + "\n")
