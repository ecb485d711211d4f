"""How true the tokens are to jieba (HMM off), measured on sentences of the text at hand.

Boundary recall is the share of jieba's word boundaries that are token boundaries too: at 1.0 no token ever
crosses a word. A smaller vocabulary cuts words into characters, which costs tokens and no recall.
"""

from __future__ import annotations

import functools
import re
import warnings
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from yanmo.tokenize.lexicon import dictionary_path
from yanmo.tokenize.segmenter import Segmenter

_SENTENCE = re.compile(r"[^。！？；\n]+[。！？；]?")
_LONGEST_SENTENCE = 200
_ALNUM = re.compile(r"[a-zA-Z0-9]")


@functools.cache
def jieba_tokenizer() -> Any:
    """jieba's own tokenizer, read from its dictionary without its cache file.

    That file lies under a fixed name in the shared temporary folder, and saves nothing.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # pkg_resources is deprecated
        import jieba
    tokenizer = jieba.Tokenizer()
    with dictionary_path().open("rb") as file:
        tokenizer.FREQ, tokenizer.total = tokenizer.gen_pfdict(file)
    tokenizer.initialized = True
    return tokenizer


def sentences_of(texts: Iterable[str], per_text: int = 2) -> list[str]:
    """The first sentences of each text, the punctuation that ends them included."""
    found: list[str] = []
    for text in texts:
        found += [s[:_LONGEST_SENTENCE] for s in _SENTENCE.findall(text[:1000])[:per_text]]
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
        width = segmenter.widths[ids[offsets[k] : offsets[k + 1]]]
        # A byte inside of a character has no width, and the token before it does not end the character.
        whole = np.append(width[1:] > 0, True)
        result.append(set(width.cumsum()[whole[: len(width)]].tolist()))
    return result


@functools.lru_cache(maxsize=10_000)
def jieba_ends(sentence: str) -> frozenset[int]:
    """The places where jieba's words end."""
    ends, at = set(), 0
    for word in jieba_tokenizer().lcut(sentence, HMM=False):
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


def agreement(pruned: Segmenter, sentences: Sequence[str]) -> dict[str, float]:
    """Boundary recall of a vocabulary, and the share of sentences in which no token crosses a word."""
    kept = total = whole = 0
    for ours, sentence in zip(token_ends(pruned, sentences), sentences, strict=True):
        theirs = jieba_ends(sentence)
        kept += len(theirs & ours)
        total += len(theirs)
        whole += theirs <= ours
    return {
        "sentences": len(sentences),
        "boundary_recall": round(kept / max(total, 1), 6),
        "sentences_uncrossed": round(whole / max(len(sentences), 1), 6),
    }


def identical_share(full: Segmenter, sentences: Sequence[str]) -> float:
    """Share of sentences that the full dictionary's segmenter cuts exactly as jieba does."""
    same = 0
    for ours, sentence in zip(token_ends(full, sentences), sentences, strict=True):
        same += joined_like_jieba(ours, sentence) == jieba_ends(sentence)
    return round(same / max(len(sentences), 1), 6)
