"""The user's pages say the same in English and Chinese, and nothing in them leads nowhere.

What a machine can compare: headings, commands, figures, links. Whether the sentences agree, a reader decides.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = sorted(
    p for p in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")] if not p.name.endswith(".zh.md")
)
ALL = [p for page in PAGES for p in (page, page.with_suffix(".zh.md"))]
NAMED = re.compile(
    r"\b(?:benchmarks|tests|components|pipelines|images|corpus)/[\w./-]*\w\.(?:py|sh|jsonl|md|json|zst)\b"
)
LINK = re.compile(r"\]\((?!https?:)([^)#\s]*)(?:#([^)\s]+))?\)")
UNITS = {"M": 1e6, "万": 1e4, "亿": 1e8}


def prose_and_code(page: Path) -> tuple[str, list[str]]:
    """The text of a page without its blocks of code, and the lines of these."""
    prose, code, fenced = [], [], False
    for line in page.read_text(encoding="utf-8").splitlines():
        if line.startswith("```"):
            fenced = not fenced
        elif fenced or line.startswith("    "):
            code.append(line.strip())
        else:
            prose.append(line)
    return "\n".join(prose), code


def headings(page: Path) -> list[str]:
    return re.findall(r"^(#+) ", prose_and_code(page)[0], re.M)


def commands(page: Path) -> set[str]:
    """Commands of ours, without comments, placeholders and what is quoted (a reason is in one's language)."""
    prose, code = prose_and_code(page)
    found = [*re.findall(r"`((?:yanmo|make|python|kubectl) [^`]+)`", prose.replace("\n", " ")), *code]
    found = [c for c in found if re.match(r"(yanmo|make|python|kubectl) ", c)]
    plain = (re.sub(r"\s{2,}.*|\s#.*", "", c) for c in found)
    plain = (re.sub(r'"[^"]*"|\b[A-Z]{2,}\b|\([^)]*\)|（[^）]*）|[\u4e00-\u9fff]+', "X", c) for c in plain)
    return {c.rstrip("\\ ") for c in plain}


def figures(page: Path) -> tuple[set[float], set[float], set[float]]:
    """Decimals, numbers with a unit (4.3 M, 430 万), and whole numbers of the prose and its tables."""
    prose = re.sub(r"`[^`]*`|\]\([^)]*\)", " ", prose_and_code(page)[0])
    prose = re.sub(r"(?<=\d),(?=\d\d\d)", "", prose)
    with_unit, plain, whole = set(), set(), set()
    for number, unit in re.findall(r"(?<![\w.-])(\d*\.?\d+)(?![\w.]*\d)(?: ?(M(?=\b)|万|亿))?", prose):
        if unit:
            with_unit.add(round(float(number) * UNITS[unit]))
        elif "." in number:
            plain.add(float(number))
        else:
            whole.add(float(number))
    return plain, with_unit, whole


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_both_languages_have_the_same_headings_commands_and_figures(page: Path) -> None:
    other = page.with_suffix(".zh.md")
    assert other.is_file(), "a page for users needs its Chinese twin"
    assert headings(page) == headings(other)
    assert commands(page) == commands(other)
    (plain, scaled, whole), (plain_zh, scaled_zh, whole_zh) = figures(page), figures(other)
    assert plain == plain_zh
    assert scaled <= scaled_zh | whole_zh and scaled_zh <= scaled | whole


def anchors(page: Path) -> set[str]:
    """Of a page's headings, as GitHub makes them."""
    titles = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.M)
    plain = (re.sub(r"[`*]|\]\([^)]*\)|\[", "", title).lower() for title in titles)
    return {re.sub(r"[^\w\- ]", "", title).replace(" ", "-") for title in plain}


EVERY = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), ROOT / "images/README.md"])


@pytest.mark.parametrize("page", EVERY, ids=lambda p: str(p.relative_to(ROOT)))
def test_every_file_and_page_that_a_page_names_is_there(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    missing = {name for name in NAMED.findall(text) if not (ROOT / name).exists()}
    if page.name == "CHANGELOG.md":
        missing = set()  # it tells of what was
    for name, anchor in LINK.findall(text):
        target = (page.parent / name).resolve() if name else page
        if not target.exists():
            missing.add(name)
        elif anchor and target.suffix == ".md" and anchor not in anchors(target):
            missing.add(f"{name}#{anchor}")
    assert not missing


def test_a_page_that_is_not_there_would_be_found() -> None:
    assert LINK.findall("[a](b.md#c) [d](https://e) [f](#g)") == [("b.md", "c"), ("", "g")]
    assert NAMED.findall("`python benchmarks/none.py --x`") == ["benchmarks/none.py"]


@pytest.mark.parametrize("page", [p for p in ALL if p.name.endswith(".zh.md")], ids=lambda p: p.name)
def test_a_chinese_page_leads_to_chinese_pages(page: Path) -> None:
    text = page.read_text(encoding="utf-8").replace(f"({page.name.replace('.zh.md', '.md')})", "()")
    led = {path for path in re.findall(r"\]\(([^)#\s]+\.md)", text) if not path.endswith(".zh.md")}
    missed = [p for p in led if (page.parent / p).with_suffix(".zh.md").exists()]
    assert not missed
