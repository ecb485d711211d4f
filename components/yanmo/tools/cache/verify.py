"""`yanmo cache verify`: checks a token cache."""

from __future__ import annotations

import itertools
import logging
from collections import Counter
from collections.abc import Iterator

import numpy as np

from yanmo.common.errors import DataError
from yanmo.common.logs import Progress, human_bytes
from yanmo.common.words import plural
from yanmo.formats.packing_settings import SPLITS
from yanmo.formats.token_cache import TOKENIZER, TokenCache, verify
from yanmo.store.objects import ObjectStore, check_sha256, check_size
from yanmo.store.output import Output
from yanmo.tools.cache.open_cache import CachedDocuments
from yanmo.tools.cache.options import CacheVerifyOptions
from yanmo.tools.store.find import find

log = logging.getLogger(__name__)


def run(store: ObjectStore, options: CacheVerifyOptions) -> int:
    output = find(store, options.what, "tokenize", channel=options.channel)
    total = _check_bytes(output) + _check_bytes(output.part(TOKENIZER))
    verify(output)
    documents = CachedDocuments(output)
    _check_ids(documents.cache)
    _check_counts(output, documents)
    checked = _check_sample(documents, options.sample)
    tokens = sum(len(ids) for ids in documents.cache.tokens)
    shards = plural(len(documents.cache.tokens), "shard")
    print(
        f"whole: {len(documents):,} documents, {tokens:,} tokens, {shards}, "
        f"{human_bytes(total)} read; {checked:,} documents encoded again, to the same ids"
    )
    return 0


def _check_bytes(output: Output) -> int:
    """Compare each object in the store itself, past any scratch cache; how many bytes there were."""
    total = sum(entry.bytes for entry in output.entries())
    progress = Progress(log, "read", total, unit="B")
    for entry in output.entries():
        wanted = output.wanted(entry)
        found, where = output.store.digest(wanted.name), f"{output.store.uri}/{wanted.name}"
        check_size(where, wanted, found.bytes if found else None)
        if found:
            check_sha256(where, wanted, found.sha256)
        progress.add(entry.bytes)
    return total


def _check_ids(cache: TokenCache) -> None:
    for shard, ids in enumerate(cache.tokens):
        most = int(ids.max()) if len(ids) else 0
        if most >= cache.vocab_size:
            place = int(np.argmax(ids >= cache.vocab_size))
            raise DataError(
                f"shard {shard}: id {most} at {place}, outside of a vocabulary of {cache.vocab_size}; run "
                "the tokenize stage again with --force"
            )


def _check_counts(output: Output, documents: CachedDocuments) -> None:
    """Compare documents, tokens and characters by split and genre with the manifest's counts."""
    counts, genres = output.manifest.counts, documents.cache.genres
    for split, index in documents.splits:
        columns = {"documents": np.ones_like(index.length), "tokens": index.length}
        columns["characters"] = index.characters
        for name, column in columns.items():
            sums = np.bincount(index.genre, column.astype(np.float64), minlength=len(genres))
            found = {genre: int(total) for genre, total in zip(genres, sums, strict=True) if total}
            want = {genre: n for genre, n in counts.get(name, {}).get(split, {}).items() if n}
            if found != want:
                raise DataError(f"{output}: {name} of {split} differ: expected {want}, found {found}")


def _check_sample(documents: CachedDocuments, sample: int) -> int:
    """Encode evenly spread documents again with the cache's own tokenizer; how many."""
    count = len(documents) if sample == -1 else min(sample, len(documents))
    seen: Counter[str] = Counter()
    for number in np.unique(np.linspace(0, len(documents) - 1, count).astype(np.int64)).tolist():
        split, index, row = documents.place(number)
        for begin, found in _runs(documents, number):
            text = documents.tokenizer.decode(found, skip_special_tokens=False)
            want = documents.tokenizer.encode(text, add_special_tokens=False).ids
            if found != want:
                pairs = enumerate(zip(found, want, strict=False))
                place = next((i for i, (a, b) in pairs if a != b), min(len(found), len(want)))
                raise DataError(
                    f"document {number} ({index.ids[row]}): its tokenizer gives other ids from token "
                    f"{begin + place} on: expected {want[place : place + 5]}, found "
                    f"{found[place : place + 5]}; this cache was made with another tokenizer or changed "
                    "since: run the tokenize stage again with --force"
                )
        seen[split] += 1
    assert set(seen) <= set(SPLITS)
    return seen.total()


def _runs(documents: CachedDocuments, number: int) -> Iterator[tuple[int, list[int]]]:
    """The ids of a document between two special ones (a chat has several runs), and where each begins."""
    special, tokens = documents.cache.special, documents.tokens(number)
    marks = {special.bos, special.eos, special.im_start, special.im_end}
    cuts = [place for place, token in enumerate(tokens) if token in marks]
    for before, after in itertools.pairwise(cuts):
        if after > before + 1:
            yield before + 1, tokens[before + 1 : after]
