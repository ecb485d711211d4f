"""Options of what is read: places, fields, encodings."""

from __future__ import annotations

from dataclasses import dataclass

from yanmo.formats.genre_names import genre_problem
from yanmo.options.fields import Options, opt
from yanmo.options.values import brief

ENCODINGS = ("auto", "utf-8", "gb18030", "big5", "utf-16", "utf-16-le", "utf-16-be")
LAYOUTS = ("auto", "block", "line", "file", "chapter")


def chat_pair(value: str) -> tuple[str, str] | None:
    """Return the two names that --chat-fields has; None where it has others."""
    names = tuple(name.strip() for name in value.split(","))
    return (names[0], names[1]) if len(names) == 2 and all(names) and names[0] != names[1] else None


@dataclass(frozen=True, kw_only=True)
class SourceOptions(Options, group="sources"):
    """Raw files, and how they are read (docs/how-to/prepare-text.md)."""

    sources: str = opt(
        "",
        "files, folders, globs, bundled or bundled-chats, separated by commas or spaces; "
        "formats: .jsonl .json .parquet .csv .tsv .txt .md, plain or .gz .zst .xz .bz2; settings follow a "
        "place after a semicolon, such as poems/;genre=shi (docs/how-to/prepare-text.md)",
        kind="environment",
        form="data_sources",
        often=True,
    )
    follow_links: bool = opt(
        False,
        "read symbolic links that lead outside of a folder of --sources; without it they are refused",
        kind="environment",
    )
    exclude: str = opt(
        "",
        "file, or object s3://bucket/name, of document ids to remove, one a line; every copy of their text "
        "is removed too",
        kind="environment",
        often=True,
    )
    encoding: str = opt("auto", "encoding of text files; auto detects it for each file", choices=ENCODINGS)
    text_layout: str = opt(
        "auto",
        "what one document is in a .txt file: a block between blank lines, a line, the whole file, or a "
        "chapter (headings on lines of their own); auto takes what each file looks like "
        "(docs/how-to/prepare-text.md)",
        choices=LAYOUTS,
    )
    max_malformed_share: float = opt(
        0.01,
        "largest share of lines that may be malformed, and of bytes that cannot be read; above it the run "
        "fails",
        most=1,
        phase="checks",
    )
    dry_run: bool = opt(
        False,
        "show what would be kept, by folder or file, and what would be dropped, by reason; commits nothing "
        "and pins nothing",
        kind="environment",
        often=True,
    )

    def contradictions(self) -> list[str]:
        """Return the options that contradict each other, or have a wrong form."""
        if not self.sources.strip():
            return ["--sources is empty: expected files, folders or globs, such as texts/ or notes.jsonl"]
        return []


@dataclass(frozen=True, kw_only=True)
class FieldOptions(Options, group="fields"):
    """Which fields hold a document's text, genre and labels."""

    text_field: str = opt("text", "field or column with a document's text", often=True)
    genre_field: str = opt("genre", "field or column with the genre; where absent, --default-genre")
    chat_fields: str = opt(
        "",
        "fields with a chat's question and answer, with a comma between, beside those that are known "
        "(docs/tutorials/chat.md)",
        later=True,
    )
    label_fields: str = opt("dynasty", "other fields to keep as labels, separated by commas")
    default_genre: str = opt(
        "",
        "genre of documents that name none; if empty, 'text' in a file whose first document names none, "
        "else such a document is malformed",
        often=True,
    )
    allow_licenses: str = opt(
        "",
        "licences whose texts may be learned from, separated by commas, such as MIT,CC-BY-SA-4.0,unknown; "
        "empty allows all",
        kind="environment",
        often=True,
    )

    def contradictions(self) -> list[str]:
        """Return the options that contradict each other, or have a wrong form."""
        if self.allow_licenses and not self.allow_licenses.replace(",", " ").strip():
            return ["--allow-licenses: expected names of licences with commas between, found none"]
        if self.chat_fields and not chat_pair(self.chat_fields):
            return [
                f"--chat-fields {brief(self.chat_fields)}: expected the names of two fields with a comma "
                "between, such as ask,reply"
            ]
        problem = genre_problem(self.default_genre.strip())
        return [f"--default-genre: {problem}"] if problem else []
