"""Agreement of the tokens with jieba's segmentation (HMM off), measured on sentences of the text.

Boundary recall is the share of jieba's word boundaries that are token boundaries too: at 1.0 no token crosses
a word boundary. A smaller vocabulary cuts words into characters, which costs tokens but no recall. What
counts are boundaries beside a Han character: between Latin letters, marks and blanks jieba has no words.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pyarrow as pa

from yanmo.tokenize.lexicon import jieba_for
from yanmo.tokenize.segmenter import Segmenter

_SENTENCE = re.compile(r"[^。！？；\n]+[。！？；]?")
_LONGEST_SENTENCE = 200
_TEXTS_PER_BATCH = 64
_HAN = re.compile(r"[\u4e00-\u9fd5]")


def sentences_of(texts: Iterable[str], per_text: int = 2, characters: int = 1000) -> list[str]:
    """Return the first sentences of each text, the punctuation that ends them included.

    Args:
        per_text: sentences of one text.
        characters: characters at the beginning of a text that are read.
    """
    found: list[str] = []
    for text in texts:
        first = itertools.islice(_SENTENCE.finditer(text[:characters]), per_text)
        found += [match[0][:_LONGEST_SENTENCE] for match in first]
    return found


def sampled(texts: pa.Array) -> list[str]:
    """Sentences of a batch of texts: the first of 64 texts, evenly spread."""
    rows = np.unique(np.linspace(0, len(texts) - 1, _TEXTS_PER_BATCH).astype(int))
    return sentences_of(texts.take(rows).to_pylist())


def thinned(sentences: Sequence[str], count: int) -> list[str]:
    """At most `count` of `sentences`, evenly spread."""
    if len(sentences) <= count:
        return list(sentences)
    return [sentences[i * len(sentences) // count] for i in range(count)]


def token_ends(segmenter: Segmenter, sentences: Sequence[str]) -> list[set[int]]:
    """For each sentence, the positions (in characters) at which a token ends."""
    ids, offsets, _ = segmenter.encode(pa.array(sentences, pa.string()))
    result = []
    for k in range(len(sentences)):
        tokens = ids[offsets[k] : offsets[k + 1]]
        # A token followed by one that begins inside a character does not end that character.
        whole = np.append(~segmenter.continues[tokens[1:]], True)
        result.append(set(segmenter.widths[tokens].cumsum()[whole[: len(tokens)]].tolist()))
    return result


def jieba_ends(sentences: Sequence[str], user: bytes = b"") -> list[set[int]]:
    """For each sentence, the positions at which jieba's words end, with user dictionaries if given."""
    return _jieba_ends(tuple(sentences), user)


@functools.lru_cache(maxsize=2)
def _jieba_ends(sentences: tuple[str, ...], user: bytes) -> list[set[int]]:
    cut = jieba_for(sentences, user).lcut
    return [set(itertools.accumulate(map(len, cut(sentence, HMM=False)))) for sentence in sentences]


def agreement(pruned: Segmenter, sentences: Sequence[str]) -> dict[str, float]:
    """Return boundary recall of a vocabulary, and the share of sentences in which no token crosses a word."""
    return shares_of(agreement_counts(pruned, sentences))


def agreement_counts(pruned: Segmenter, sentences: Sequence[str], user: bytes = b"") -> Counter[str]:
    """Return the counts behind `agreement`, which can be added up over files.

    Args:
        user: lines of the user dictionaries that jieba is to load.

    Returns:
        `sentences`, those `uncrossed`, jieba's `boundaries` and those `kept`.
    """
    found: Counter[str] = Counter(sentences=len(sentences))
    cuts = zip(token_ends(pruned, sentences), jieba_ends(sentences, user), sentences, strict=True)
    for ours, every, sentence in cuts:
        theirs = {end for end in every if _HAN.search(sentence, end - 1, end + 1)}
        found["kept"] += len(theirs & ours)
        found["boundaries"] += len(theirs)
        found["uncrossed"] += theirs <= ours
    return found


def shares_of(counts: Mapping[str, int]) -> dict[str, float]:
    """Return the metrics of `agreement` from its counts."""
    return {
        "sentences": counts["sentences"],
        "boundary_recall": round(counts["kept"] / max(counts["boundaries"], 1), 6),
        "sentences_uncrossed": round(counts["uncrossed"] / max(counts["sentences"], 1), 6),
    }
