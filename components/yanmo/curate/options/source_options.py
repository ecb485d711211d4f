"""Options of what is read: places, fields, encodings."""

from __future__ import annotations

import re
from dataclasses import dataclass

from yanmo.options.fields import Options, opt
from yanmo.options.values import brief

ENCODINGS = ("auto", "utf-8", "gb18030", "big5", "utf-16", "utf-16-le", "utf-16-be")
LAYOUTS = ("block", "line", "file")


@dataclass(frozen=True, kw_only=True)
class SourceOptions(Options, group="sources"):
    """Raw files, and how they are read (docs/curate.md)."""

    sources: str = opt(
        "",
        "files, folders, globs or a sources .yaml, separated by commas or spaces, each with settings such as "
        ";genre=shi (docs/curate.md): .jsonl .parquet .txt, plain or .gz .zst .xz .bz2",
        kind="environment",
        form=True,
        often=True,
    )
    exclude: str = opt(
        "",
        "file of document ids to take down, one per line, with every copy of their text",
        kind="environment",
        often=True,
    )
    encoding: str = opt(
        "auto", "encoding of text files; auto tells each file's by statistics", choices=ENCODINGS
    )
    text_layout: str = opt(
        "block",
        "what a document is in a .txt file: a block between blank lines, a line, or the file",
        choices=LAYOUTS,
    )
    max_malformed_share: float = opt(0.01, "share of lines that may be malformed", most=1, phase="checks")
    shard: str = opt(
        "",
        "map only a part of the source files and stop, such as 2/7; a run without it finds the work done",
        kind="environment",
    )

    def contradictions(self) -> list[str]:
        """What cannot be before anything is read."""
        if not self.sources.strip():
            return ["--sources is empty: expected files, folders or globs of .jsonl, .parquet or .txt"]
        part = re.fullmatch(r"([0-9]{1,6})/([0-9]{1,6})", self.shard or "1/1")
        if not part or not 1 <= int(part[1]) <= int(part[2]):
            return [f"--shard {brief(self.shard)}: expected a part of a whole, 1/7 to 7/7"]
        return []


@dataclass(frozen=True, kw_only=True)
class FieldOptions(Options, group="fields"):
    """Where a document's text, title, author, genre and licence stand."""

    text_field: str = opt("text", "field or column with a document's text", often=True)
    title_field: str = opt("title", "field with its title (optional)")
    author_field: str = opt("author", "field with its author (optional)")
    genre_field: str = opt("genre", "field with its genre")
    source_field: str = opt("source", "field with where it comes from; the file's name where absent")
    license_field: str = opt("license", "field with its licence; see --licenses where absent")
    label_fields: str = opt("dynasty", "other fields kept as labels, separated by commas")
    default_genre: str = opt(
        "", "genre of documents that name none; empty counts them as malformed", often=True
    )
    genres: str = opt(
        "",
        "genres that must be there, separated by commas (shi,ci,wen,fu); empty takes what comes",
        phase="checks",
    )
    licenses: str = opt(
        "chinese-poetry/=MIT,Werneror/=MIT,NiuTrans/=MIT,kanripo/=CC-BY-SA-4.0",
        "licence of documents that name none: beginning of the source=licence, separated by commas",
    )

    def contradictions(self) -> list[str]:
        """What is not of the form it should have."""
        return [
            f"--licenses: expected beginning=licence, found {entry.strip()!r}"
            for entry in self.licenses.split(",")
            if entry.strip() and "=" not in entry
        ]
