"""Reads `--sources`: places, and settings for the text in each of them, such as which fields hold what.

    poems.jsonl prose/*.parquet                 places, separated by commas or white space
    tang.jsonl;genre=shi;label.dynasty=tang     each with settings after semicolons

A file whose name is the whole text is that one place, whatever the name holds.
"""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from yanmo.common.errors import EnvironmentFault, UsageError
from yanmo.curate.options.source_options import ENCODINGS, LAYOUTS
from yanmo.curate.sources.chat_layouts import Pair
from yanmo.formats.genre_names import genre_problem

VALUES = ("genre", "title", "author", "source", "license")
"""Settings for all documents of a place; they win over the documents' own fields."""
FIELDS = tuple(f"{name}_field" for name in ("text", *VALUES))
"""Settings for the names of fields in this place's documents."""
LABEL = "label."
BUNDLED = "bundled"
"""`--sources bundled`: the corpus that comes with Yanmo."""
BUNDLED_CHATS = "bundled-chats"
"""`--sources bundled-chats`: the chats that come with it."""
_BUNDLED_FILES = {BUNDLED: "small.jsonl.zst", BUNDLED_CHATS: "chats.jsonl.zst"}
_CORPUS = Path(__file__).parents[2] / "corpus"
"""Where they lie: in the package, or in a checkout (pyproject.toml says what of it the wheel has)."""
if not _CORPUS.is_dir():
    _CORPUS = Path(__file__).parents[4] / "corpus"
_NAME = re.compile(r"[^\s=;,]{1,100}\Z")
_CHOICES = {"encoding": ENCODINGS, "layout": LAYOUTS}
_HINT = (
    f"expected one of {', '.join((*VALUES, 'encoding', 'layout', *FIELDS))} or label.NAME, such as "
    "'tang.jsonl;genre=shi;label.dynasty=tang'"
)

_LICENSES = (
    ("chinese-poetry/", "MIT"),
    ("Werneror/", "MIT"),
    ("NiuTrans/", "MIT"),
    ("kanripo/", "CC-BY-SA-4.0"),
)
"""(beginning of a document's source, its licence): collections that name none themselves."""


@dataclass(frozen=True)
class Settings:
    """Settings of one place, as sorted pairs of name and value; part of the key."""

    values: tuple[tuple[str, str], ...] = ()

    def get(self, name: str, default: str = "") -> str:
        """Return the setting called `name`."""
        return dict(self.values).get(name, default)

    @property
    def labels(self) -> tuple[tuple[str, str], ...]:
        """Label name -> value."""
        return tuple((n.removeprefix(LABEL), v) for n, v in self.values if n.startswith(LABEL))


NO_SETTINGS = Settings()


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


@dataclass(frozen=True)
class Entry:
    """One place of `--sources` and its settings."""

    place: str
    settings: Settings = NO_SETTINGS


def read_entries(sources: str) -> list[Entry]:
    """Return the entries of `--sources`.

    Raises:
        EnvironmentFault: `bundled` or `bundled-chats` where the bundled corpus is not.
        UsageError: an unknown setting, or a value that it cannot have.
    """
    whole = sources.strip()
    if whole in _BUNDLED_FILES:
        return [Entry(_bundled(whole))]
    if os.path.exists(whole):  # a name with spaces, commas or semicolons in it
        return [Entry(whole)]
    place, _, settings = whole.partition(";")
    if _split(place) != [place] and len(_split(settings)) == 1 and os.path.exists(place):
        return [_entry_of(whole)]  # the same, with settings
    return [_entry_of(text) for text in _split(whole)]


def _bundled(name: str) -> str:
    """Return the path of the corpus that comes with Yanmo, or of its chats."""
    path = _CORPUS / _BUNDLED_FILES[name]
    if not path.is_file():  # the images train and cluster do without
        raise EnvironmentFault(
            f"--sources {name}: this installation has no corpus at {path}; run in the data image, or give "
            "text of your own"
        )
    return str(path)


def _split(whole: str) -> list[str]:
    """Return the entries of a list; a word that names nothing belongs to the address before it."""
    found: list[str] = []
    for gap, word in re.findall(r"((?:^|[,\s])[,\s]*)([^,\s]+)", whole):
        if found and "," not in gap and "://" in found[-1] and not _is_place(word):
            found[-1] += gap + word
        else:
            found.append(word)
    return found


def _is_place(word: str) -> bool:
    place = word.partition(";")[0]
    return (
        "://" in place
        or place in _BUNDLED_FILES
        or os.path.isabs(place)
        or (bool(glob.glob(place)) or os.path.exists(place))
    )


def _entry_of(text: str) -> Entry:
    place, *pairs = text.split(";")
    if place in _BUNDLED_FILES and not os.path.exists(place):
        place = _bundled(place)
    values: dict[str, str] = {}
    for pair in filter(None, pairs):
        name, equals, value = pair.partition("=")
        if not equals or name in values:
            raise UsageError(f"--sources {text}: {pair!r} is no name=value, or given twice; {_HINT}")
        values[name] = value
    return Entry(place, _settings(values, f"--sources {text}"))


def _settings(values: dict[str, str], where: str) -> Settings:
    for name, value in values.items():
        is_known = name in (*VALUES, *FIELDS, *_CHOICES) or (
            name.startswith(LABEL) and _NAME.match(name.removeprefix(LABEL))
        )
        if not is_known:
            raise UsageError(f"{where}: unknown setting {name!r}; {_HINT}")
        if not value.strip() or value not in _CHOICES.get(name, (value,)):
            expected = ", ".join(_CHOICES.get(name, ("a value",)))
            raise UsageError(f"{where}: {name}={value}: expected {expected}")
        problem = genre_problem(value.strip()) if name == "genre" else ""
        if problem:
            raise UsageError(f"{where}: no genre: {problem}")
    return Settings(tuple(sorted((name, " ".join(value.split())) for name, value in values.items())))
