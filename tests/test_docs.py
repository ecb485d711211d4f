"""What README and docs name is there: files, scripts, tests, pages and their headings."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("README*.md"), *ROOT.glob("docs/**/*.md")])
NAMED = re.compile(
    r"\b(?:benchmarks|tests|components|pipelines|images|corpus)/[\w./-]*\w\.(?:py|sh|jsonl|md|json|zst)\b"
)
LINK = re.compile(r"\]\((?!https?:)([^)#\s]*)(?:#([^)\s]+))?\)")


def headings(page: Path) -> set[str]:
    """The anchors of a page, as GitHub makes them."""
    found = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    plain = (re.sub(r"[`*]|\]\([^)]*\)|\[", "", text).lower() for text in found)
    return {re.sub(r"[^\w\- ]", "", text).replace(" ", "-") for text in plain}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_file_and_page_that_a_page_names_is_there(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    missing = {name for name in NAMED.findall(text) if not (ROOT / name).exists()}
    for name, anchor in LINK.findall(text):
        target = (page.parent / name).resolve() if name else page
        if not target.exists():
            missing.add(name)
        elif anchor and target.suffix == ".md" and anchor not in headings(target):
            missing.add(f"{name}#{anchor}")
    assert not missing


def test_a_page_that_is_not_there_would_be_found() -> None:
    assert LINK.findall("[a](b.md#c) [d](https://e) [f](#g)") == [("b.md", "c"), ("", "g")]
    assert NAMED.findall("`python benchmarks/none.py --x`") == ["benchmarks/none.py"]


def test_the_gates_pages_give_the_same_commands_and_figures() -> None:
    """Every number of one stands in the other, as often as it likes."""
    pages = [(ROOT / "docs" / name).read_text(encoding="utf-8") for name in ("gate.md", "gate.zh.md")]
    commands = [re.findall(r"^    python (\S+ (?:[\w.-]+ ?)*)", page, flags=re.MULTILINE) for page in pages]
    assert commands[0] and commands[0] == commands[1]
    english, chinese = (set(re.findall(r"\d[\d,]*\.\d+(?= %)", page)) for page in pages)
    assert english == chinese
