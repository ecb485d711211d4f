"""How true the tokens are to jieba (HMM off), measured on sentences of the text at hand.

Boundary recall is the share of jieba's word boundaries that are token boundaries too: at 1.0 no token ever
crosses a word. A smaller vocabulary cuts words into characters, which costs tokens and no recall.
"""

from __future__ import annotations

import functools
import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa

from yanmo.tokenize.lexicon import jieba_tokenizer
from yanmo.tokenize.segmenter import Segmenter

_SENTENCE = re.compile(r"[^。！？；\n]+[。！？；]?")
_LONGEST_SENTENCE = 200
_ALNUM = re.compile(r"[a-zA-Z0-9]")


def sentences_of(texts: Iterable[str], per_text: int = 2, characters: int = 1000) -> list[str]:
    """The first sentences of each text, the punctuation that ends them included.

    Args:
        per_text: sentences of one text.
        characters: at the beginning of a text that are looked at.
    """
    found: list[str] = []
    for text in texts:
        found += [s[:_LONGEST_SENTENCE] for s in _SENTENCE.findall(text[:characters])[:per_text]]
    return found


def thinned(sentences: Sequence[str], count: int) -> list[str]:
    """At most `count` of `sentences`, evenly spread."""
    if len(sentences) <= count:
        return list(sentences)
    return [sentences[i * len(sentences) // count] for i in range(count)]


def token_ends(segmenter: Segmenter, sentences: Sequence[str]) -> list[set[int]]:
    """Per sentence the places (characters from its beginning) where a token ends."""
    ids, offsets, _ = segmenter.encode(pa.array(sentences, pa.string()))
    result = []
    for k in range(len(sentences)):
        tokens = ids[offsets[k] : offsets[k + 1]]
        # The token before one that begins inside of a character does not end that character.
        whole = np.append(~segmenter.continues[tokens[1:]], True)
        result.append(set(segmenter.widths[tokens].cumsum()[whole[: len(tokens)]].tolist()))
    return result


@functools.lru_cache(maxsize=100_000)
def jieba_ends(sentence: str, user: bytes = b"") -> frozenset[int]:
    """The places where jieba's words end, with user dictionaries if there are any."""
    ends, at = set(), 0
    for word in jieba_tokenizer(user).lcut(sentence, HMM=False):
        at += len(word)
        ends.add(at)
    return frozenset(ends)


def joined_like_jieba(ends: set[int], sentence: str) -> set[int]:
    """`ends` without those inside a run of ASCII letters and digits that stand one by one.

    jieba joins such runs after its search over words.
    """
    ordered = sorted(ends)
    single = {
        e for b, e in zip([0, *ordered], ordered, strict=False) if e - b == 1 and _ALNUM.match(sentence[b])
    }
    return {e for e in ends if not (e in single and e + 1 in single)}


def agreement(pruned: Segmenter, sentences: Sequence[str], user: bytes = b"") -> dict[str, float]:
    """Boundary recall of a vocabulary, and the share of sentences in which no token crosses a word.

    Args:
        user: lines of the user dictionaries that jieba is to load.
    """
    kept = total = whole = 0
    for ours, sentence in zip(token_ends(pruned, sentences), sentences, strict=True):
        theirs = jieba_ends(sentence, user)
        kept += len(theirs & ours)
        total += len(theirs)
        whole += theirs <= ours
    return {
        "sentences": len(sentences),
        "boundary_recall": round(kept / max(total, 1), 6),
        "sentences_uncrossed": round(whole / max(len(sentences), 1), 6),
    }


def full_agreement(full: Segmenter, sentences: Sequence[str], user: bytes = b"") -> dict[str, float]:
    """Share of sentences that the full dictionary's segmenter cuts exactly as jieba does.

    Returns:
        `sentences`, `identical` (a share) and `ties`: how many of those that differ have the same score both
        ways, such as 呵呵/呵 and 呵/呵呵. jieba searches from the right and prefers a long first word,
        tokenizers from the left and a long last one; no score can make them agree.
    """
    same = ties = 0
    for ours, sentence in zip(token_ends(full, sentences), sentences, strict=True):
        theirs, joined = jieba_ends(sentence, user), joined_like_jieba(ours, sentence)
        same += joined == theirs
        ties += joined != theirs and _is_tie(full, _words(joined, sentence), _words(theirs, sentence))
    identical = round(same / max(len(sentences), 1), 6)
    return {"sentences": len(sentences), "identical": identical, "ties": ties}


def _words(ends: Iterable[int], sentence: str) -> Counter[str]:
    ordered = sorted(ends)
    return Counter(sentence[a:b] for a, b in zip([0, *ordered], ordered, strict=False))


def _is_tie(full: Segmenter, ours: Counter[str], theirs: Counter[str]) -> bool:
    """Whether the words in which two cuts differ have equal scores."""
    sums = []
    for words in (ours - theirs, theirs - ours):
        if any(word not in full.ids for word in words):
            return False
        sums.append(sum(full.scores[full.ids[word]] * count for word, count in words.items()))
    return math.isclose(*sums, abs_tol=1e-9)
