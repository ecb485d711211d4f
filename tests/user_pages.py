"""The pages for users, and what lies in one: prose, blocks of code, commands, options."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
TOP = [ROOT / f"{name}.md" for name in ("README", "CONTRIBUTING", "SECURITY")]
FOLDERS = [ROOT / folder / "README.md" for folder in ("images", "manifests")]
PAGES = sorted(
    p for p in [*TOP, *FOLDERS, *(ROOT / "docs").glob("[!di]*/*.md")] if not p.name.endswith(".zh.md")
)
ALL = [p for page in PAGES for p in (page, page.with_suffix(".zh.md"))]


def page_called(name: str) -> Path:
    """Return the page of docs/ with this name, such as `stages.zh.md`, whatever its room."""
    (found,) = (page for page in ALL if page.name == name and page.parent.parent == ROOT / "docs")
    return found


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


def code_of(page: Path) -> Iterator[str]:
    """Commands: spans of code, and blocks with their continued lines joined; without what is docker's."""
    prose, code = prose_and_code(page)
    dockers = re.compile(r'BUILD="[^"]*"')
    yield from re.findall(r"`([^`]+)`", dockers.sub("", prose.replace("\n", " ")))
    lines = "\n".join(re.sub(r"\s#\s.*|^\$ ", "", line) for line in code).replace("\\\n", " ")
    yield from dockers.sub("", lines).splitlines()
