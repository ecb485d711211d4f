"""Write a table of the packages in an image: their licences, and where the texts of these lie.

    python3 licences.py FOLDER ... > packages.tsv        folders with Python packages

Each image has it at /usr/share/licenses/yanmo. A text stays where its package has put it. This needs Python
alone, as an image has no more.
"""

from __future__ import annotations

import re
import subprocess
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import NamedTuple

HEAD = """# What is in this image beside Yanmo's own code, under which licence, and where the text of it lies.
# A package without a text says its licence in its metadata alone; the common ones are in {common}.
# Sources of Debian's packages: Debian keeps those of every version in its snapshot archive.
kind\tname\tversion\tlicence\ttexts
"""
COMMON, DOC = Path("/usr/share/common-licenses"), Path("/usr/share/doc")
_TEXT = re.compile(r"(licen[sc]es?|copying|notice|copyright|authors|eula)\b", re.IGNORECASE)
_CLASSIFIER = "License :: "


class Row(NamedTuple):
    """A package; `texts` are paths."""

    kind: str
    name: str
    version: str
    licence: str
    texts: list[str]


def main(folders: Sequence[str]) -> int:
    """Print the table; returns 1 where a package says nothing of its licence, in metadata or a text."""
    rows = [*python_itself(), *python_packages(folders), *debian_packages()]
    print(HEAD.format(common=COMMON), end="")
    for row in rows:
        print(*row[:4], " ".join(row.texts), sep="\t")
    silent = [f"{row.name} {row.version}" for row in rows if not (row.licence or row.texts)]
    if silent:
        print(f"no licence is named by: {', '.join(silent)}", file=sys.stderr)
    return bool(silent)


def python_itself() -> Iterator[Row]:
    """Return CPython, where its text is: Debian's own Python is one of its packages."""
    text = Path(sysconfig.get_path("stdlib"), "LICENSE.txt")
    if text.is_file():
        yield Row("python", "CPython", sys.version.split()[0], "PSF-2.0", [str(text)])


def python_packages(folders: Sequence[str]) -> list[Row]:
    """Return the packages that are installed in some folders, by name."""
    found = [row_of(each) for each in distributions(path=list(folders))]
    return sorted(found, key=lambda row: row.name.lower())


def row_of(package: Distribution) -> Row:
    said = package.metadata
    classified = [
        c.rpartition(" :: ")[2] for c in said.get_all("Classifier", []) if c.startswith(_CLASSIFIER)
    ]
    by_hand = said.get("License", "").strip().partition("\n")[0]
    licence = said.get("License-Expression") or " AND ".join(classified) or by_hand
    if not licence and all(".dist-info" in str(file) for file in package.files or ()):
        licence = "none: it holds no file"
    texts = [
        str(package.locate_file(f))
        for f in package.files or ()
        if _TEXT.match(f.name) and ".dist-info" in str(f)
    ]
    return Row(
        "python", said["Name"], package.version, licence, sorted(t for t in texts if Path(t).is_file())
    )


def debian_packages() -> list[Row]:
    """Return Debian's packages; none where dpkg is not."""
    try:
        listing = ["dpkg-query", "--show", "--showformat", "${Package}\t${Version}\n"]
        done = subprocess.run(listing, capture_output=True, text=True, check=True)
    except FileNotFoundError:
        return []
    rows = []
    for line in dict.fromkeys(done.stdout.splitlines()):  # one of two architectures
        name, version = line.split("\t")
        text = DOC / name / "copyright"
        said = text.read_text(encoding="utf-8", errors="replace") if text.is_file() else ""
        short = dict.fromkeys(re.findall(r"^License: *(\S.*)$", said, re.MULTILINE))
        rows.append(Row("debian", name, version, ", ".join(short), [str(text)] if said else []))
    return rows


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
