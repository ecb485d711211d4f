from __future__ import annotations

import re
import subprocess
import unicodedata
from pathlib import Path

import opencc
from hypothesis import given, settings
from hypothesis import strategies as st

from yanmo.curate.text import normalize as rules
from yanmo.curate.text.normalize import normalize
from yanmo.curate.text.simplified import _BEGINNINGS, code_points, simplified, to_text

_CONVERT = opencc.OpenCC("t2s").convert
_EVERY = [chr(c) for c in range(1, 0x110000) if not 0xD800 <= c < 0xE000]
_PARTS = [_BEGINNINGS[i : i + 2] for i in range(0, len(_BEGINNINGS), 2)]
_TEXTS = st.lists(
    st.sampled_from([*_PARTS, *_BEGINNINGS, *"頭髮乾坤覆蓋憑藉⿰車馬\uf907\ufe00の\n"])
    | st.characters(exclude_categories=["Cs"], exclude_characters="\0")
).map("".join)


def _by_opencc(text: str) -> str:
    return "\n".join(map(_CONVERT, text.split("\n")))


def _by_table(text: str) -> str:
    return to_text(simplified(code_points(f"{text}\0"))).removesuffix("\0")


@settings(max_examples=300, deadline=None)
@given(_TEXTS)
def test_the_table_converts_as_opencc_does(text: str) -> None:
    assert _by_table(text) == _by_opencc(text)


def test_every_character_and_every_phrase_is_as_in_opencc(tmp_path: Path) -> None:
    folder = Path(opencc.__file__).parent / "clib"
    source, found = folder / "share/opencc/TSPhrases.ocd2", tmp_path / "phrases.txt"
    command = [folder / "bin/opencc_dict", "-i", source, "-o", found, "-f", "ocd2", "-t", "text"]
    subprocess.run(command, check=True)
    phrases = [line.split("\t")[0] for line in found.read_text(encoding="utf-8").splitlines()]
    assert sorted({phrase[:2] for phrase in phrases}) == sorted(_PARTS)
    alone = "\n".join([*_EVERY, *phrases])
    assert _by_table(alone) == _by_opencc(alone)


def test_usual_characters_need_no_composing() -> None:
    second = {d.split()[1] for c in _EVERY if " " in (d := unicodedata.decomposition(c)) and d[0] != "<"}
    usual = [c for c in _EVERY if not rules._unusual()[ord(c)]]
    assert len(usual) > 100_000 and not any(
        f"{ord(c):04X}" in second or unicodedata.combining(c) for c in usual
    )
    for steps in rules.FORMS.values():
        texts = [f"{c}a" for c in usual]
        assert all(rules._composed(rules._without_controls(t, steps), steps) is t for t in texts)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.text(st.sampled_from("字a \t\u3000\n")), min_size=1))
def test_loose_ends_go_line_by_line(texts: list[str]) -> None:
    lines = ["\n".join(line.rstrip(" \t\u3000") for line in text.split("\n")) for text in texts]
    assert normalize(texts, frozenset()).texts == [re.sub("\n{4,}", "\n\n\n", t.strip("\n")) for t in lines]


def _has(c: str, encoding: str) -> bool:
    try:
        return "\u4e00" <= c <= "\u9fff" and bool(c.encode(encoding))
    except UnicodeEncodeError:
        return False


def _modern(text: str) -> str:
    more = sum(_has(c, "gb2312") - _has(c, "big5") for c in text) > 0
    lines = []
    for line in text.split("\n"):
        is_japanese = sum("\u3041" <= c < "\u30fb" for c in line) >= 2
        pairs = zip(line, _CONVERT(line), strict=True)
        lines.append("".join(a if is_japanese or b >= "\U00020000" or (more and _has(a, "gb2312")) else b
                             for a, b in pairs))  # fmt: skip
    return "\n".join(lines)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.text(st.sampled_from("覆蓋覆盖乾隆干后後裏里餸藉口国國のカ\na")), min_size=1))
def test_modern_text_is_converted_where_it_is_traditional(texts: list[str]) -> None:
    assert normalize(texts, frozenset(("simplified",))).texts == [
        re.sub("\n{4,}", "\n\n\n", _modern(text).strip("\n")) for text in texts
    ]
