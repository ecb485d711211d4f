"""How well near duplicates are found, measured on copies with known damage.

Documents are copied with 2 to 20 % of their characters and words changed, dropped or added.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from yanmo.curate.duplicates.near_duplicates import propose_of_bands
from yanmo.curate.duplicates.shingle_sets import Sets, similarities
from yanmo.curate.duplicates.shingles import SHINGLE, band_keys
from yanmo.curate.duplicates.signing import BAND_COLUMNS
from yanmo.engine.sql import Tables

DAMAGES = (0.02, 0.05, 0.1, 0.15, 0.2)
"""Shares of characters that are changed, dropped or added, in turn."""
_LONGEST = 2000
"""Characters of a document that are used."""
_PARTS = re.compile(r"[A-Za-z0-9]+|.", re.DOTALL)


def measure_planted(texts: Sequence[str], similarity: float) -> dict[str, Any]:
    """Recall and precision on damaged copies of `texts`.

    Args:
        texts: of different documents, to be compared; each is copied once.
        similarity: from which two texts count as copies.

    Returns:
        planted: copies. similar: those that are at least `similarity` to their original. found: of these.
        found_pairs: all pairs found, right or wrong. recall: found / similar. precision: found / found_pairs.
        by_similarity: planted, proposed by a band and found copies, by tenths of the similarity.
    """
    texts = [text[:_LONGEST] for text in texts]
    both = [*texts, *(damaged(text, i) for i, text in enumerate(texts))]
    sets, proposed = Sets.of(both), proposed_pairs(both)
    shared = similarities(sets.take(proposed[:, 0]), sets.take(proposed[:, 1]))
    planted = np.stack([np.arange(len(texts)), np.arange(len(texts)) + len(texts)], axis=1)
    true = similarities(sets.take(planted[:, 0]), sets.take(planted[:, 1]))
    met = {*map(tuple, proposed.tolist())}
    is_proposed = np.array([tuple(pair) in met for pair in planted.tolist()])
    found = is_proposed & (true >= similarity)
    return {
        "planted": len(planted),
        "similar": int((true >= similarity).sum()),
        "found": int(found.sum()),
        "found_pairs": int((shared >= similarity).sum()),
        "recall": _share(found.sum(), (true >= similarity).sum()),
        "precision": _share(found.sum(), (shared >= similarity).sum()),
        "by_similarity": [
            {
                "from": tenth / 10,
                "planted": int(inside.sum()),
                "proposed": int(is_proposed[inside].sum()),
                "found": int(found[inside].sum()),
            }
            for tenth in range(10)
            if (inside := np.minimum((true * 10).astype(int), 9) == tenth).any()
        ],
    }


def _share(part: Any, whole: Any) -> float | None:
    return round(float(part) / float(whole), 4) if whole else None


def proposed_pairs(texts: Sequence[str]) -> Any:
    """Pairs of `texts` that share a band, by index, (pairs, 2)."""
    keys, sizes = band_keys(texts)
    return pairs_of_keys(keys, np.flatnonzero(sizes >= SHINGLE))


def pairs_of_keys(keys: Any, positions: Any, rank: Any = None) -> Any:
    """Pairs of documents that share a key of a band, sorted, (pairs, 2).

    Args:
        keys: (bands, documents)
        positions: documents that are compared.
        rank: of each document; its position by default.
    """
    tables = Tables()
    ranks = np.arange(keys.shape[1]) if rank is None else rank
    bands = {name: key[positions] for name, key in zip(BAND_COLUMNS, keys, strict=True)}
    tables.add("bands", position=positions.astype(np.int32), rank=ranks[positions], **bands)
    propose_of_bands(tables)
    found = tables.table("select first, second from pairs order by first, second")
    return np.stack([found["first"].to_numpy(), found["second"].to_numpy()], axis=1)


def damaged(text: str, number: int) -> str:
    """`text` with some characters and words changed, dropped or doubled."""
    share, generator = DAMAGES[number % len(DAMAGES)], random.Random(number)
    characters = _PARTS.findall(text)
    result = []
    for character in characters:
        if generator.random() >= share:
            result.append(character)
            continue
        kind = generator.randrange(3)
        if kind == 0:
            result.append(generator.choice(characters))
        elif kind == 1:
            result += [character, generator.choice(characters)]
    return "".join(result)
