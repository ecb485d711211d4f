"""Build the site of these pages: `make docs`, or `python docs/site/build.py [FOLDER]` (build/site).

English lies in FOLDER, Chinese in FOLDER/zh, each with an index of its own for its search; nothing is fetched
when it is read. The pages are the README, docs/ and what these lead to, where they lie in the repository, so
their links are those of a forge. A link or an anchor that leads nowhere fails the build.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import jieba  # what MkDocs' search cuts Chinese with, where it is there
from mkdocs.commands.build import build
from mkdocs.config import load_config
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import Abort

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("tutorials", "how-to", "reference", "explanation")
LANGUAGES = {"en": "More", "zh": "其他"}
"""Language -> the title of what lies in no room."""
_LINK = re.compile(r"(?P<before>\]\(|src=\")(?!\w+:|#)(?P<path>[^)#\s\"]+)")
_OF_THE_OTHER = "yanmo-other:"
"""Before a link into the other language's site, which MkDocs cannot check as it builds one."""
_WRAPPED = re.compile(r"(?<=[\u3000-\u9fff\uff01-\uff5e])\n *(?=[\u3000-\u9fff\uff01-\uff5e\[])")
"""A line's end between Chinese characters, for which a browser shows a space."""
_MARKER = re.compile(r"(?:[-*+]|\d+[.)]) +(?=\S)")
_CODE = re.compile(r"(^ *```.*?^ *```$|`+[^`]+`+)", re.DOTALL | re.MULTILINE)


def main(folder: Path) -> int:
    """Build both languages into `folder`; returns the exit code."""
    logging.basicConfig(format="%(message)s", level=logging.WARNING)
    jieba.setLogLevel(logging.WARNING)
    pages, others = found()
    shutil.rmtree(folder, ignore_errors=True)
    try:
        for language in LANGUAGES:
            with tempfile.TemporaryDirectory(prefix="yanmo-docs-") as staged:
                stage(Path(staged), language, pages, others)
                build(configured(folder, language, Path(staged), pages))
    except Abort as error:
        print(error, file=sys.stderr)
        return 1
    for page in folder.glob("**/*.html"):
        page.write_text(page.read_text(encoding="utf-8").replace(_OF_THE_OTHER, ""), encoding="utf-8")
    return 0


def found() -> tuple[set[Path], set[Path]]:
    """Return the pages of both languages and the other files they lead to, as paths in the repository."""
    pages, others = set(), set()
    to_read = [*ROOT.glob("README*.md"), *ROOT.glob("docs/**/*.md")]
    while to_read:
        if (page := to_read.pop().resolve()) in pages:
            continue
        pages.add(page)
        for link in links(page.read_text(encoding="utf-8")):
            target = (page.parent / link).resolve()
            if target.suffix == ".md" and target.is_file():
                to_read.append(target)
            elif target.is_file():
                others.add(target)
    return {p.relative_to(ROOT) for p in pages}, {p.relative_to(ROOT) for p in others}


def links(text: str) -> list[str]:
    """Return where the relative links of a page lead, and where its images lie."""
    return [m["path"] for part in _CODE.split(text)[::2] for m in _LINK.finditer(part)]


def stage(folder: Path, language: str, pages: set[Path], others: set[Path]) -> None:
    """Copy one language into `folder`, under the English names; a page without a twin is in both."""

    def moved(link: re.Match[str]) -> str:
        target = Path(os.path.normpath(page.parent / link["path"]))
        if target not in pages:
            return link[0]
        if is_in(target, language, pages):
            return link[0].replace(".zh.md", ".md")
        to, here = english(target).with_suffix(".html"), english(page).parent
        to = to.with_name("index.html") if to.stem == "README" else to
        to, here = ("zh" / to, here) if language == "en" else (to, "zh" / here)
        return f"{link['before']}{_OF_THE_OTHER}{os.path.relpath(to, here)}"

    shutil.copy(Path(__file__).with_name("iframe-worker.js"), folder)
    for path in others:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / path, folder / path)
    for page in (page for page in pages if is_in(page, language, pages)):
        (folder / page).parent.mkdir(parents=True, exist_ok=True)
        parts = _CODE.split(as_python_markdown((ROOT / page).read_text(encoding="utf-8")))
        parts[::2] = [_WRAPPED.sub("", _LINK.sub(moved, part)) for part in parts[::2]]
        (folder / english(page)).write_text("".join(parts), encoding="utf-8")


def as_python_markdown(text: str) -> str:
    """Return CommonMark lists as MkDocs parses them: what belongs to an item is indented by four, and an
    empty line before the first item and before one that follows an item's second paragraph."""
    written: list[str] = []
    items: list[int] = []  # columns where the text of the open items begins
    fenced = begun_by_item = False
    for line in text.splitlines():
        column = len(line) - len(line.lstrip())
        in_list = bool(items)
        while line and items and column < items[-1]:
            items.pop()
        within = items[-1] if items else 0
        marker = _MARKER.match(line, column)
        fence = line.startswith("```", column)
        if marker and not fenced and column - within < 4:
            if not (in_list and begun_by_item) and written and written[-1]:
                written.append("")
        else:
            marker = None
        if not written or not written[-1]:
            begun_by_item = bool(marker)  # the block of lines between two empty ones
        written.append(" " * (4 * len(items) + column - within) * bool(line) + line[column:])
        if marker:
            items.append(marker.end())
        fenced ^= fence
    return "\n".join(written) + "\n"


def configured(folder: Path, language: str, staged: Path, pages: set[Path]) -> MkDocsConfig:
    """Return MkDocs' configuration for a language; the navigation follows the index pages of the rooms."""
    here = {english(page) for page in pages}
    nav: list[Any] = ["README.md"]
    for room in ROOMS:
        index = Path("docs", room, "README.md")
        text = (staged / index).read_text(encoding="utf-8")
        listed = [index, *dict.fromkeys(Path(os.path.normpath(index.parent / link)) for link in links(text))]
        listed = [page for page in listed if page in here and page.parent == index.parent]
        nav.append({text.partition("\n")[0].lstrip("# "): [str(page) for page in listed]})
        here.difference_update(listed)
    nav.append({LANGUAGES[language]: sorted(str(page) for page in here - {Path("README.md")})})
    where = {"docs_dir": str(staged), "site_dir": str(folder / "zh" if language == "zh" else folder)}
    config = load_config(str(Path(__file__).with_name("mkdocs.yml")), nav=nav, strict=True, **where)
    config.theme["language"] = language
    return config


def is_in(page: Path, language: str, pages: set[Path]) -> bool:
    """Return whether a page is one of a language's: also where it has no twin in that language."""
    chinese = page.name.endswith(".zh.md")
    return chinese == (language == "zh") or (
        not chinese and page.with_name(f"{page.stem}.zh.md") not in pages
    )


def english(page: Path) -> Path:
    return page.with_name(page.name.replace(".zh.md", ".md"))


if __name__ == "__main__":
    sys.exit(main(Path(*sys.argv[1:2] or [ROOT / "build/site"])))
