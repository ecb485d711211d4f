"""Rules for modern text: what they change in documentation and novels, and what they must leave alone."""

from __future__ import annotations

import io
import json
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
import rjieba
import zstandard

from yanmo.balance.augmentation import modern
from yanmo.balance.augmentation.synonyms import MODERN_WORDS, Synonyms

WORDS = Synonyms.read(MODERN_WORDS)
RULES: dict[str, Callable[[str, float, Random], str]] = {
    "synonym": lambda text, p, chance: modern.synonym(text, p, chance, WORDS),
    "delete": modern.delete,
    "insert-modern": modern.insert,
    "reorder": modern.reorder,
}
PAGE = """# 非常 重要 的标题

因为 TiDB 非常快，所以使用 `tiup dm`。见 https://example.com/非常/因为。

| 因为 | 非常 |
|---|---|
| 但是。 | 如果。 |

```python
因为，非常，但是。
x = "因为今天非常高兴，所以我们立刻出发。"
```

    因为今天非常高兴，所以我们立刻出发。

- 因为非常高兴，所以出发。
<b>因为今天非常高兴，所以立刻出发。</b>
《因为非常，所以立刻》（因为非常，所以立刻）
"""


@pytest.mark.parametrize("rule", RULES)
def test_code_markup_latin_addresses_headings_and_tables_are_untouched(rule: str) -> None:
    for seed in range(20):
        assert RULES[rule](PAGE, 1.0, Random(seed)) == PAGE


@pytest.mark.parametrize("rule", RULES)
def test_a_sentence_beside_them_changes_and_the_rest_stays(rule: str) -> None:
    sentence = "因为今天天气非常好，贾宝玉忽然高兴，已经经常在大观园里读书。"
    results = {RULES[rule](f"{PAGE}\n{sentence}\n{PAGE}", 0.7, Random(seed)) for seed in range(30)}
    assert len(results) > 1
    for result in results:
        assert result.startswith(f"{PAGE}\n") and result.endswith(f"\n{PAGE}")
        made = result[len(PAGE) + 1 : -len(PAGE) - 1]
        assert "\n" not in made and made[-1] == "。"
        assert not re.search("[大观园]", made.replace("大观园", "")), "a word stays whole"


def test_words_are_left_out_between_the_first_and_the_last_of_a_clause() -> None:
    assert modern.delete("我们明天上午参观博物馆。", 1.0, Random(1)) == "我们博物馆。"
    few = modern.delete("我们明天上午参观博物馆。", 0.5, Random(1))
    assert few.startswith("我们") and few.endswith("博物馆。")


def test_two_neighbouring_clauses_change_places_unless_one_is_empty_or_quoted() -> None:
    two = "我们今天去看花，他们明天来喝茶。"
    assert modern.reorder(two, 1.0, Random(1)) == "他们明天来喝茶，我们今天去看花。"
    assert modern.reorder(two, 0.0, Random(1)) == two
    for kept in (
        "我们今天去看花。",
        "我们今天去看花，，他们明天来喝茶。",
        "他说：“我们今天去看花，他们来。”",
    ):
        assert modern.reorder(kept, 1.0, Random(1)) == kept


@pytest.fixture(scope="module")
def novels() -> list[str]:
    """Modern documents of the bundled corpus."""
    path = Path(__file__).parents[4] / "corpus" / "modern.jsonl.zst"
    with path.open("rb") as file:
        lines = io.TextIOWrapper(zstandard.ZstdDecompressor().stream_reader(file), encoding="utf-8")
        return [json.loads(next(lines))["text"] for _ in range(200)]


def test_words_of_real_text_change_whole(novels: list[str]) -> None:
    changed = 0
    for number, text in enumerate(novels):
        kept = modern.delete(text, 0.3, Random(number))
        assert modern.delete(text, 0.0, Random(number)) == text
        changed += kept != text
        marks = re.compile("[^，。！？；、：\n]+")
        assert marks.sub("x", kept) == marks.sub("x", text), "every clause is there"
        inserted = modern.insert(text, 0.3, Random(number))
        rest = iter(inserted)
        assert all(c in rest for c in text), "nothing goes where something is put in"
        assert set(Counter(inserted) - Counter(text)) <= {"的", "了"}
        assert Counter(modern.reorder(text, 1.0, Random(number))) == Counter(text)
        swapped = modern.synonym(text, 1.0, Random(number), WORDS)
        rest = iter(swapped)
        for word in rjieba.cut(text, False):
            if word not in WORDS.equivalents:
                assert all(c in rest for c in word), "what is no word of the table stays, in order"
    assert changed > len(novels) / 2
