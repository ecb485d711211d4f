"""How well near duplicates are found, measured on copies with known damage.

Documents are copied with 2 to 20 % of their characters and words changed, dropped or added.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from yanmo.common.hash_set import distinct
from yanmo.curate.duplicates.proposals import pairs_of_keys
from yanmo.curate.duplicates.shingle_sets import Pairs, ShingleSets, make_pairs, similarities
from yanmo.curate.duplicates.shingles import SHINGLE, band_keys

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
    proposed = proposed_pairs(both)
    shared = similarities(proposed, ShingleSets.of(both))
    planted = _pairs_of_copies(len(texts))
    true = similarities(planted, ShingleSets.of(both))
    is_proposed = np.isin(planted, proposed)
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


def proposed_pairs(texts: Sequence[str]) -> Pairs:
    """Pairs of `texts` that share a band, by index."""
    keys, sizes = band_keys(texts)
    positions = np.flatnonzero(sizes >= SHINGLE)
    found = [pairs_of_keys(band[positions], positions, positions) for band in keys]
    return distinct(np.concatenate(found))


def _pairs_of_copies(count: int) -> Pairs:
    return make_pairs(np.arange(count), np.arange(count) + count)


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
