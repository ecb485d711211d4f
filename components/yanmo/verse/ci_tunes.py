"""Learns which tune of 词 means which form, from texts whose titles name their tunes.

    python -m yanmo.verse.ci_tunes corpus/small.jsonl.zst > components/yanmo/verse/ci_tunes.txt

A tune is known where ten texts have the same line lengths. A place has a tone where 85 % of their characters
have it alone; characters of both tones are not counted. Two lines rhyme where they do so by 平水韵 in 35 %
of the texts (two random lines: 4 %; 词 rhyme more widely than 平水韵, so that no lines reach 100 %).
A sentence ends where most texts end it.
"""

from __future__ import annotations

import io
import itertools
import json
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

from yanmo.chinese.pingshui import LEVEL, OBLIQUE, rhymes, tones
from yanmo.verse.forms import ANY
from yanmo.verse.poems import Poem, read_poem
from yanmo.verse.tunes import tune_of

_TEXTS, _OF_A_TONE, _RHYMING = 10, 0.85, 0.35
_LOST = "失调名"
_HEAD = """\
# Tunes of 词: name, texts that it was learned from, and for each line its tones (平, 仄; 中 is either), the
# letter of its rhyme, and the mark at its end. Learned by ci_tunes.py from the songs of chinese-poetry (MIT,
# corpus/LICENSES.md) in corpus/small.jsonl.zst; no register of tunes (词谱) with a free licence was found.
"""


def learned(texts: Iterable[tuple[str, str]]) -> list[tuple[str, int, str]]:
    """(tune, texts, clauses) of each known tune, those with most texts first, from (title, text)."""
    by_tune: dict[str, list[Poem]] = defaultdict(list)
    for title, text in texts:
        by_tune[tune_of(title)].append(read_poem(text))
    found = []
    for tune, poems in by_tune.items():
        shape, number = Counter(poem.shape for poem in poems).most_common(1)[0]
        if number >= _TEXTS and tune != _LOST:
            found.append((tune, number, _clauses([poem for poem in poems if poem.shape == shape])))
    return sorted(found, key=lambda row: (-row[1], row[0]))


def _clauses(poems: Sequence[Poem]) -> str:
    letters = _letters(poems)
    result = ""
    for i, lines in enumerate(zip(*(poem.lines for poem in poems), strict=True)):
        is_end = sum(i in poem.ends for poem in poems) * 2 > len(poems) or i + 1 == len(poems[0].lines)
        tones = "".join(_tone(characters) for characters in zip(*lines, strict=True))
        if letters[i] and tones[-1] == ANY:  # a rhyme has one tone, or the tune has more than one form
            tones = tones[:-1] + _tone([line[-1] for line in lines], 0.5)
        result += tones + letters[i] + ("。" if is_end else "，")
    return result


def _tone(characters: Iterable[str], share: float = _OF_A_TONE) -> str:
    seen = Counter(tone for c in characters if len(of := tones(c)) == 1 for tone in of)
    tone = max((LEVEL, OBLIQUE), key=seen.__getitem__)
    return tone if seen[tone] and seen[tone] >= share * seen.total() else ANY


def _letters(poems: Sequence[Poem]) -> list[str]:
    """For each line the letter of its rhyme, "" where it has none."""
    number = len(poems[0].lines)
    group = list(range(number))
    for i, j in itertools.combinations(range(number), 2):
        if _rhyming(poems, i, j) >= _RHYMING:
            group = [group[i] if g == group[j] else g for g in group]
    sizes = Counter(group)
    names = {g: chr(ord("a") + n) for n, g in enumerate(g for g in dict.fromkeys(group) if sizes[g] > 1)}
    return [names.get(g, "") for g in group]


def _rhyming(poems: Sequence[Poem], i: int, j: int) -> float:
    pairs = [(rhymes(poem.lines[i][-1]), rhymes(poem.lines[j][-1])) for poem in poems]
    known = [bool(a & b) for a, b in pairs if a and b]
    return sum(known) / max(len(known), 1)


def main(path: str) -> None:
    """Write the table to stdout."""
    import zstandard

    data = zstandard.ZstdDecompressor().stream_reader(io.BytesIO(Path(path).read_bytes()))
    records = map(json.loads, io.TextIOWrapper(data, encoding="utf-8"))
    rows = learned((record["title"], record["text"]) for record in records if record["genre"] == "词")
    sys.stdout.write(_HEAD + "".join(f"{tune} {number} {clauses}\n" for tune, number, clauses in rows))


if __name__ == "__main__":
    main(sys.argv[1])
