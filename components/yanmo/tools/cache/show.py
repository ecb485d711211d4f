"""`yanmo cache show`: shows a token cache."""

from __future__ import annotations

from typing import Any

from yanmo.common.aligned_table import text_table
from yanmo.common.logs import human_bytes
from yanmo.common.words import plural
from yanmo.formats.token_cache import TOKENIZER
from yanmo.formats.token_file import id_type
from yanmo.store.objects import ObjectStore
from yanmo.store.output import Output
from yanmo.tools.cache.open_cache import CachedDocuments
from yanmo.tools.cache.options import CacheShowOptions
from yanmo.tools.store.find import find, print_json
from yanmo.tools.store.show import described

_MOST_IDS = 40


def run(store: ObjectStore, options: CacheShowOptions) -> int:
    output = find(store, options.what, "tokenize", channel=options.channel)
    if not options.document:
        if options.json:
            print_json(_facts(output) | {"counts": output.manifest.counts})
        else:
            _print_cache(output)
        return 0
    documents = CachedDocuments(output)
    number = _number_of(documents, options.document)
    if options.json:
        print_json(_document(documents, number))
    else:
        _print_document(documents, number, options.ids)
    return 0


def _number_of(documents: CachedDocuments, named: str) -> int:
    """Return the number of the document that a number, or the beginning of an id, names."""
    try:
        number = int(named) if len(named) < 16 else None
    except ValueError:
        number = None
    if number is None:
        return documents.number_of(named)
    number += len(documents) if number < 0 else 0
    documents.place(number)
    return number


def _facts(output: Output) -> dict[str, Any]:
    """What a cache is, apart from its counts."""
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
        "judged": f"{metadata.get('judged_documents')} documents were compared with Hugging Face's tokenizer",
        "jieba": _agreement(metadata.get("jieba_agreement")),
    }
    return {name: value for name, value in facts.items() if value is not None}


def _agreement(found: dict[str, Any] | None) -> str | None:
    if not found:
        return None
    return (
        f"{100 * found['boundary_recall']:.2f} % of its word boundaries are token boundaries "
        f"({found['sentences']} sentences)"
    )


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
    for place in ("first", "last"):
        shown = output.manifest.metadata.get(f"{place}_document") or {}
        print(f"\n{place} document {shown.get('id', '-')}\n  {shown.get('text', '')!r}")


def _document(documents: CachedDocuments, number: int) -> dict[str, Any]:
    split, index, row = documents.place(number)
    return {
        "number": number,
        "id": index.ids[row],
        "split": split,
        "genre": documents.cache.genres[int(index.genre[row])],
        "shard": int(index.shard[row]),
        "offset": int(index.offset[row]),
        "length": int(index.length[row]),
        "characters": int(index.characters[row]),
        "loss_spans": index.loss_spans.get(row),
        "tokens": documents.tokens(number),
        "text": documents.text(number),
    }


def _print_document(documents: CachedDocuments, number: int, every_id: bool) -> None:
    found = _document(documents, number)
    print(
        f"document {number} of {len(documents)}: {found['id']}\n"
        f"{found['split']}, {found['genre']}; {found['characters']} characters, {found['length']} tokens "
        f"from {found['offset']} of shard {found['shard']}"
        + (f"; loss on {found['loss_spans']}" if found["loss_spans"] is not None else "")
    )
    print(found["text"])
    ids = found["tokens"] if every_id else found["tokens"][:_MOST_IDS]
    pieces = [f"{documents.tokenizer.id_to_token(i)}/{i}" for i in ids]
    more = found["length"] - len(ids)
    print("  " + " ".join(pieces) + (f" ... {more} more (--ids)" if more else "") + "\n")
