from __future__ import annotations

import itertools
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from yanmo.curate.sources.markdown import cut_at_headings, first_heading, front_matter

PAGE = "\n# 山水\n\n正文。\n"


@pytest.mark.parametrize(
    ("lines", "fields"),
    [
        ("title: 山水\ndate: 2024-01-02 10:00", {"title": "山水", "date": "2024-01-02 10:00"}),
        ("title: '山: 水'\nauthor: [王五, \"李四\"]", {"title": "山: 水", "author": "王五, 李四"}),
        ("author:\n  - 王五\n  - 李四\n# 注\nhead: {a: 1}", {"author": "王五, 李四", "head": ""}),
        ("hero:\n  name: x\n  text: |\n    y\ntitle: 山", {"hero": "", "title": "山"}),
        ('url: https://a.b/c?d=e\n', {"url": "https://a.b/c?d=e"}),
    ],
)  # fmt: skip
def test_front_matter_is_fields_and_no_text(lines: str, fields: dict[str, str]) -> None:
    found, page, before = front_matter(f"---\n{lines}\n---\n{PAGE}")
    assert (found, page, before) == (fields, PAGE, lines.count("\n") + 3)


def test_front_matter_in_toml() -> None:
    found, page, _ = front_matter(f'+++\ntitle = "山水"\nauthor="王五"\n+++\n{PAGE}')
    assert (found, page) == ({"title": "山水", "author": "王五"}, PAGE)


@pytest.mark.parametrize(
    "text",
    [
        PAGE,
        "---\n\n正文。\n\n---\n",
        "---\n---\nx",
        "---\ntitle: x\n",
        "---\n他说：好。\n---\n",
        "--- x\na: b\n---\n",
    ],
)
def test_text_between_two_rules_is_text(text: str) -> None:
    assert front_matter(text) == ({}, text, 0)


def test_the_heading_that_a_page_begins_with() -> None:
    assert first_heading(PAGE) == "山水" and first_heading("## 山\n") == first_heading("山\n# 水") == ""


BOOK = (
    "# 一\n前言。\n## 甲\n"
    + "字" * 50
    + "\n## 乙\n短。\n```\n# 注释\n```\n## 丙\n短。\n# 二\n"
    + "字" * 30
    + "\n"
)


@pytest.mark.parametrize(
    ("most", "starts"),
    [
        (1000, ["# 一"]),
        (110, ["# 一", "# 二"]),
        (70, ["# 一", "## 乙"]),
        (40, ["# 一", "## 甲", "## 乙", "# 二"]),
    ],
)
def test_a_long_page_is_cut_at_headings_and_joined_as_far_as_it_fits(most: int, starts: list[str]) -> None:
    parts = cut_at_headings(BOOK, most)
    assert [part.partition("\n")[0] for _, part in parts] == starts
    for line, part in parts:
        assert "".join(BOOK.splitlines(keepends=True)[line:]).startswith(part)


@given(
    st.lists(st.sampled_from(["# 一", "## 二", "### 三", "字字字", "", "```", "~~~~", "#无"]), max_size=30),
    st.integers(1, 40),
)
def test_no_character_is_lost_by_cutting(lines: list[str], most: int) -> None:
    text = "\n".join(lines)
    parts = cut_at_headings(text, most)
    assert "".join(part for _, part in parts) == text
    assert all(len(a) + len(b) > most for (_, a), (_, b) in itertools.pairwise(parts))
    assert all(re.match(" {0,3}#", part) for _, part in parts[1:])
