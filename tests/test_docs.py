"""The user's pages say the same in English and Chinese, and what they lead to is there.

What a machine can compare: headings, commands, tables, figures, links. Whether the sentences agree, a reader
decides.
"""

from __future__ import annotations

import re
import runpy
import subprocess
import unicodedata
from pathlib import Path
from typing import Any

import pytest
from user_pages import ALL, PAGES, ROOT, page_called, prose_and_code

from yanmo.common.errors import ExitCode

NAMED = re.compile(
    r"(?<![\w/:])(?:benchmarks|tests|components|pipelines|images|corpus)/[\w./-]*\w\.(?:py|sh|jsonl|md|json|zst)\b"
)
FORMER = re.compile(r"`git show ([0-9a-f]+:[\w./]+)`")
LINK = re.compile(r"\]\((?!https?:)([^)#\s]*)(?:#([^)\s]+))?\)")
UNITS = {"M": 1e6, "万": 1e4, "亿": 1e8}


def headings(page: Path) -> list[str]:
    return re.findall(r"^(#+) ", prose_and_code(page)[0], re.M)


def commands(page: Path) -> set[str]:
    """Lines of code, and commands in the prose, without comments and what is in one's language."""
    prose, code = prose_and_code(page)
    inline = re.findall(r"`((?:yanmo|make|python|kubectl) [^`]+)`", prose.replace("\n", " "))
    plain = (re.sub(r"\s{2,}.*|\s#.*", "", c) for c in [*inline, *code])
    plain = (re.sub(r'"[^"]*"|\b[A-Z]{2,}\b|\([^)]*\)|（[^）]*）|[\u4e00-\u9fff]+', "X", c) for c in plain)
    return {c.rstrip("\\ ") for c in plain} - {""}


def tables(page: Path) -> list[list[int]]:
    """Columns of each row, table by table."""
    found: list[list[int]] = [[]]
    for line in prose_and_code(page)[0].splitlines():
        if line.startswith("|"):
            found[-1].append(len(re.findall(r"(?<!\\)\|", line)))
        elif found[-1]:
            found.append([])
    return [rows for rows in found if rows]


def links(page: Path) -> set[str]:
    """Where a page leads, without the language of the page there."""
    text = page.read_text(encoding="utf-8").replace("(" + twin(page).name + ")", "()")
    return {path.replace(".zh.", ".") for path in re.findall(r"\]\(([^)#\s]+)", text)}


def twin(page: Path) -> Path:
    """The same page in the other language."""
    name = page.name
    return page.with_name(name.replace(".zh.md", ".md") if ".zh." in name else name.replace(".md", ".zh.md"))


def figures(page: Path) -> tuple[set[float], set[float], set[float]]:
    """Decimals, numbers with a unit (4.3 M, 430 万), and whole numbers of the prose and its tables."""
    prose = re.sub(r"`[^`]*`|\]\([^)]*\)", " ", prose_and_code(page)[0])
    prose = re.sub(r"(?<=\d),(?=\d\d\d)", "", prose.replace("\n", " "))
    with_unit, plain, whole = set(), set(), set()
    number_and_unit = r"(?<![\w.-])(\d*\.?\d+)(?![\w.]*\d)(?: ?(M(?=\b)|万|亿))?"
    for number, unit in re.findall(number_and_unit, prose, re.ASCII):  # also right behind a Chinese character
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
    assert tables(page) == tables(other)
    assert links(page) == links(other)
    (plain, scaled, whole), (plain_zh, scaled_zh, whole_zh) = figures(page), figures(other)
    assert plain == plain_zh
    large, large_zh = ({n for n in of if n >= 10} for of in (scaled | whole, scaled_zh | whole_zh))
    assert large == large_zh  # smaller ones may be words


def anchors(page: Path) -> set[str]:
    """Of a page's headings, as GitHub makes them."""
    titles = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.M)
    plain = (re.sub(r"[`*]|\]\([^)]*\)|\[", "", title).lower() for title in titles)
    return {re.sub(r"[^\w\- ]", "", title).replace(" ", "-") for title in plain}


NOTES = [ROOT / "images/README.md", ROOT / "benchmarks/NOTES.md"]
EVERY = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *NOTES])


def missing_on(page: Path) -> set[str]:
    """Files, pages and headings that a page names and that are not there."""
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
    return missing


def test_every_file_and_page_that_a_page_names_is_there() -> None:
    assert {str(page): missing for page in EVERY if (missing := missing_on(page))} == {}


def missing_in_git(name: str) -> bool:
    """Whether git has no such object."""
    return subprocess.run(["git", "cat-file", "-e", name], cwd=ROOT, capture_output=True).returncode != 0


def test_what_a_page_shows_of_former_commits_is_in_them() -> None:
    named = {name for page in EVERY for name in FORMER.findall(page.read_text(encoding="utf-8"))}
    assert len(named) > 10
    if any(missing_in_git(f"{name.partition(':')[0]}^{{commit}}") for name in named):
        pytest.skip("this checkout has no history")
    assert not [name for name in named if missing_in_git(name)]


def test_a_page_that_is_not_there_would_be_found() -> None:
    assert LINK.findall("[a](b.md#c) [d](https://e) [f](#g)") == [("b.md", "c"), ("", "g")]
    assert NAMED.findall("`python benchmarks/none.py --x`") == ["benchmarks/none.py"]


def test_a_chinese_page_leads_to_chinese_pages() -> None:
    missed = []
    for page in (p for p in ALL if p.name.endswith(".zh.md")):
        text = page.read_text(encoding="utf-8").replace(f"({page.name.replace('.zh.md', '.md')})", "()")
        led = {path for path in re.findall(r"\]\(([^)#\s]+\.md)", text) if not path.endswith(".zh.md")}
        missed += [f"{page.name}: {p}" for p in led if (page.parent / p).with_suffix(".zh.md").exists()]
    assert not missed


def width(line: str) -> int:
    """Columns of a terminal."""
    return sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in line)


def test_prose_is_wrapped_at_100_columns() -> None:
    whole = re.compile(r"[-\d. ]*(`[^`]+`)?[!-~，。；]*")  # a command or an address is not torn apart
    lines = [(page.name, line) for page in ALL for line in prose_and_code(page)[0].splitlines()]
    loose = ((name, line) for name, line in lines if not line.startswith(("|", "#", "!", "[!")))
    assert [(name, line) for name, line in loose if width(line) > 100 and not whole.fullmatch(line)] == []


@pytest.mark.parametrize("page", ["stages.md", "stages.zh.md"])
def test_the_exit_codes_are_those_of_the_code(page: str) -> None:
    rows = re.findall(r"^\| (\d+) \|", page_called(page).read_text(encoding="utf-8"), re.M)
    assert {int(code) for code in rows} == {*map(int, ExitCode), 128 + 15}


def house() -> dict[str, Any]:
    return runpy.run_path(str(ROOT / "docs/images/house.py"))


def test_the_picture_of_the_house_is_the_one_that_its_command_draws() -> None:
    assert (ROOT / "docs/images/house.svg").read_text(encoding="utf-8") == house()["picture"]()


def test_rooms_and_arrows_of_the_picture_are_those_of_the_code() -> None:
    rules = runpy.run_path(str(ROOT / "tests/test_import_rules.py"))
    may_import, rooms = rules["MAY_IMPORT"], house()["ROOMS"]
    names = {key: set(room.names.split(" · ")) for key, room in rooms.items()}
    assert set().union(*names.values()) == {*may_import, "yanmo_pipelines"}
    for above, below in house()["ARROWS"]:
        assert rooms[above].floor < rooms[below].floor
        if above != "pipelines":
            assert any(may_import[name] & names[below] for name in names[above])


@pytest.mark.parametrize("page", ["architecture.md", "architecture.zh.md"])
def test_every_path_of_the_architecture_is_there(page: str) -> None:
    text = (ROOT / "docs/explanation" / page).read_text(encoding="utf-8")
    paths = {p for p in re.findall(r"`([\w./]+)`", text) if "/" in p or p.endswith((".py", ".toml"))}
    near = ("", "components/yanmo/")
    assert len(paths) > 20
    assert {
        p
        for p in paths - {"config.py", "__main__.py", "metrics.py"}
        if not any((ROOT / n / p).exists() for n in near)
    } == set()
