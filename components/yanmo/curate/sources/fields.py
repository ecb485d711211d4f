"""Which fields of a record hold what."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from yanmo.curate.sources.chat_layouts import Pair
from yanmo.curate.sources.entries import VALUES, Settings

_LICENSES = (
    ("chinese-poetry/", "MIT"),
    ("Werneror/", "MIT"),
    ("NiuTrans/", "MIT"),
    ("kanripo/", "CC-BY-SA-4.0"),
)
"""(beginning of a document's source, its licence): collections that name none themselves."""


@dataclass(frozen=True, kw_only=True)
class Fields:
    """Names of a record's fields, and values for fields that it lacks."""

    text: str
    title: str = "title"
    author: str = "author"
    genre: str
    source: str = "source"
    license: str = "license"
    labels: tuple[str, ...]
    default_genre: str
    """Genre of documents that name none, chats too; "" where there is none."""
    max_characters: int = 1_000_000
    """Of a document; a longer file of Markdown is cut at headings."""
    chat_fields: Pair | None = None
    """Names of the fields that hold a question and its answer, beside the usual ones."""
    given: Mapping[str, str] = field(default_factory=dict)
    """Field -> value for all documents of a file, instead of their own."""
    given_labels: tuple[tuple[str, str], ...] = ()
    genre_unknown: bool = False
    """Whether the file's first record names no genre: then its documents are PLAIN, not malformed."""

    @property
    def names(self) -> list[str]:
        """The fields that say something about a text, and have to be text themselves."""
        return [self.title, self.author, self.genre, self.source, self.license, *self.labels]

    @property
    def columns(self) -> list[str]:
        """Every field's name, the text's first."""
        return [self.text, *self.names, *(self.chat_fields or ())]

    def of_source(self, settings: Settings) -> Fields:
        """These fields, with the settings of one source."""
        if not settings.values:
            return self
        renamed: dict[str, Any] = {
            name: settings.get(f"{name}_field", getattr(self, name)) for name in ("text", *VALUES)
        }
        given = {name: settings.get(name) for name in VALUES if settings.get(name)}
        return replace(self, given=given, given_labels=settings.labels, **renamed)

    def license_of(self, source: str) -> str:
        """Return the licence of a document that names none, by its source."""
        return next((name for start, name in _LICENSES if source.startswith(start)), "unknown")
