"""What a document is in a .txt file, by its look."""

from __future__ import annotations

import pytest

from yanmo.curate.sources.text_layouts import cut_at_chapters, likely_layout

NOVEL = (
    "书名\n\n目录\n第一章 起\n第二章 落\n\n第一卷 风\n第一章 起\n甲。\n\n"
    "第二章 落\n第三章讲了。\n　　第十回　终\n完"
)


def test_a_novel_is_cut_at_its_chapters_and_nothing_is_lost() -> None:
    found = cut_at_chapters(NOVEL)
    assert [(line, name) for line, name, _ in found] == [
        (0, ""),
        (3, "第一章 起"),
        (10, "第二章 落"),
        (12, "第十回　终"),
    ]
    assert "".join(text for *_, text in found) == NOVEL
    assert found[1][2].endswith("甲。\n\n"), "a table of contents stays with the chapter behind it"


@pytest.mark.parametrize(
    ("text", "layout"),
    [
        (NOVEL, "chapter"),
        ("\n第三回 王婆贪贿说风情\n　　话说。\n\n　　却说。\n", "chapter"),
        ("前言\n\n第一章 起\n甲。", "block"),
        ("　　甲。\n\n　　乙。\n\n　　丙。\n \r\n　　丁。\n", "file"),
        ("标题\n\n　　甲。\n\n　　乙。\n\n　　丙。\n\n　　丁。\n", "file"),
        ("床前明月光，\n疑是地上霜。\n\n白日依山尽，\n黄河入海流。\n", "block"),
        ("第一章讲了很多，第二章也是。\n\n第二章讲的是别的。\n", "block"),
        ("", "block"),
    ],
)
def test_the_layout_is_what_a_file_looks_like(text: str, layout: str) -> None:
    assert likely_layout(text.encode()) == layout


def test_a_text_of_nothing_but_headings_takes_no_longer_than_its_length() -> None:
    found = cut_at_chapters("第一章\n" * 200_000)
    assert len(found) == 1 and len(found[0][2]) == 800_000
