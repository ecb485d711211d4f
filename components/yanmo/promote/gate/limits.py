"""Limits on guard metrics, which must stay in bounds whatever the bits per character are.

Standard library only, since the option is read where no numpy is.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from yanmo.common.words import Words, did_you_mean
from yanmo.options.values import number_in

VERSE = {
    "form": Words("generated shi of four or eight lines of five or seven", "四句或八句，五言或七言"),
    "equal_lines": Words(
        "generated shi of an even number of lines, all of five or seven", "句数为偶，五言或七言"
    ),
    "rhyme": Words("generated regular poems that rhyme", "偶句通押平水韵"),
    "regulated": Words("generated shi whose form, rhyme and tones all hold", "格律全合"),
    "rhyme_pairs": Words("neighbouring even lines of generated shi that rhyme", "相邻偶句押韵"),
    "alternation": Words("generated regular lines whose tones alternate", "二四六平仄相间（近体）"),
    "alternation_any": Words(
        "generated lines of five or seven whose tones alternate", "二四六平仄相间（各体）"
    ),
    "opposition": Words("generated couplets of opposite tones", "对：一联之内平仄相对"),
    "adhesion": Words("joints of generated couplets that share a tone", "粘：两联之间平仄相粘"),
    "no_lone_level": Words("generated level endings without a lone level tone", "不犯孤平"),
    "mixed_ending": Words("generated lines that do not end in three equal tones", "不犯三平尾、三仄尾"),
    "parallel": Words("generated middle couplets that are parallel", "中间两联对仗（近似判断）"),
    "fresh": Words("characters new to their generated poem", "诗中不重字"),
    "own_tune": Words("generated ci of the usual line lengths of their tune", "合本词牌常见句式"),
    "any_tune": Words("generated ci of the usual line lengths of some tune", "合某词牌常见句式"),
    "sentence_rhyme": Words("neighbouring sentences of generated ci that rhyme", "相邻韵句押韵"),
}
"""Rule of verse, by its name in an evaluation -> what its share is taken of, and the rule in Chinese."""

LIMIT_METRICS = {
    "distinct_2": Words("different character pairs in samples", "最重复的体裁中不同字对的比例"),
    "written_share": Words("samples that hold text", "有文字的样例比例"),
    "ended_share": Words("samples ended by the model", "自行收尾的样例比例"),
    "loop_share": Words("samples in a loop", "陷入循环的样例比例"),
    "copied_8grams": Words(
        "generated 8-grams found in the training text", "生成的八字片段见于训练文本的比例"
    ),
    "longest_copy": Words("longest copied run, characters", "照抄训练文本的最长片段（字）"),
    "genre_obedience": Words("samples of the genre asked for", "体裁相符的样例比例"),
    "repeated_share": Words(
        "samples equal to another one of their genre", "最重复的体裁中与他篇雷同的样例比例"
    ),
    "forgotten_bits": Words(
        "bits per character of texts beyond those before tuning, mean of genres",
        "文本上较微调之前多用的每字比特，各体平均",
    ),
    **{name: Words(rule.en, f"生成诗词合“{rule.zh}”的比例") for name, rule in VERSE.items()},
}
"""Name of a metric -> what it is; `yanmo.promote.gate.guards` reads them from an evaluation."""

_LIMIT = re.compile(r"\s*(\w+)\s*(<=|>=)\s*([-+.\deE]+)\s*\Z")


@dataclass(frozen=True)
class Limit:
    """One bound of one metric."""

    metric: str
    sign: str
    """`<=` or `>=`."""
    bound: float

    def holds(self, value: float) -> bool:
        """Return whether `value` is within the bound; NaN is not."""
        return value <= self.bound if self.sign == "<=" else value >= self.bound

    def __str__(self) -> str:
        return f"{self.metric} {self.sign} {self.bound:g}"


def parse_limits(text: str) -> tuple[Limit, ...]:
    """`"distinct_2>=0.5,loop_share<=0.3"` as limits; an empty text has none.

    Raises:
        ValueError: not of that form, or no metric of that name.
    """
    return tuple(_parsed(part) for part in text.split(",") if part.strip())


def _parsed(part: str) -> Limit:
    found = _LIMIT.match(part)
    hint = "expected NAME<=BOUND or NAME>=BOUND, separated by commas"
    if not found:
        raise ValueError(f"--limits: {part.strip()!r}: {hint}")
    name, sign, bound = found.groups()
    if name not in LIMIT_METRICS:
        hint = did_you_mean(name, LIMIT_METRICS)
        raise ValueError(f"--limits: no metric {name!r}{hint}; there are {', '.join(LIMIT_METRICS)}")
    value = number_in(bound)
    if value is None or not math.isfinite(value):
        raise ValueError(f"--limits: {part.strip()!r}: {hint}")
    return Limit(name, sign, value)
