"""Reads `--sources`: places, and settings for the text in each of them.

    poems.jsonl prose/*.parquet                 places, separated by commas or white space
    tang.jsonl;genre=shi;label.dynasty=tang     each with settings after semicolons
    sources.yaml                                the same in a file: for many places, or values with spaces

The sources file, with paths relative to it:

    sources:
      - path: tang/*.jsonl
        genre: 诗
        license: CC0-1.0
        labels: {dynasty: 唐}
      - path: scans/
        genre: 文
        encoding: big5
        layout: file
"""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from yanmo.common.address import Address, redacted
from yanmo.common.errors import DataError, EnvironmentFault, UsageError
from yanmo.common.given_file import MIB, given_text
from yanmo.curate.options.source_options import ENCODINGS, LAYOUTS
from yanmo.curate.sources.raw_files import local_path
from yanmo.formats.genre_names import genre_problem
from yanmo.options.yaml_file import plain_yaml, yaml_problem

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
_MOST_BYTES = 4 * MIB
"""Of a sources file; 20,000 places."""

_NAME = re.compile(r"[^\s=;,]{1,100}\Z")
_CHOICES = {"encoding": ENCODINGS, "layout": LAYOUTS}
_HINT = (
    f"expected one of {', '.join((*VALUES, 'encoding', 'layout', *FIELDS))} or label.NAME, such as "
    "'tang.jsonl;genre=shi;label.dynasty=tang'"
)


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


@dataclass(frozen=True)
class Entry:
    """One place of `--sources` and its settings."""

    place: str
    settings: Settings = NO_SETTINGS


def read_entries(sources: str) -> list[Entry]:
    """Return the entries of `--sources`, including those of sources files.

    Raises:
        EnvironmentFault: `bundled` or `bundled-chats` where the bundled corpus is not.
        UsageError: an unknown setting, or a value that it cannot have.
        DataError: a sources file cannot be read.
    """
    whole = sources.strip()
    if whole in _BUNDLED_FILES:
        return [Entry(_bundled(whole))]
    if not _is_yaml(whole) and os.path.exists(whole):  # a name with spaces, commas or semicolons in it
        return [Entry(whole)]
    place, _, settings = whole.partition(";")
    if _split(place) != [place] and len(_split(settings)) == 1 and os.path.exists(place):
        return list(_entries_of(whole))  # the same, with settings
    texts = [whole] if _is_yaml(whole) and os.path.isfile(whole) else _split(whole)
    return [entry for text in texts for entry in _entries_of(text)]


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
        or _is_yaml(place)
        or os.path.isabs(place)
        or (bool(glob.glob(place)) or os.path.exists(place))
    )


def _is_yaml(place: str) -> bool:
    return place.lower().endswith((".yaml", ".yml"))


def _entries_of(text: str) -> Iterator[Entry]:
    place, *pairs = text.split(";")
    if place in _BUNDLED_FILES and not os.path.exists(place):
        place = _bundled(place)
    if _is_yaml(place):
        if pairs:
            raise UsageError(f"--sources {text}: a sources file takes no settings; write them into it")
        yield from _file_entries(local_path(place))
        return
    values: dict[str, str] = {}
    for pair in filter(None, pairs):
        name, equals, value = pair.partition("=")
        if not equals or name in values:
            raise UsageError(f"--sources {text}: {pair!r} is no name=value, or given twice; {_HINT}")
        values[name] = value
    yield Entry(place, _settings(values, f"--sources {text}"))


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


def _file_entries(path: Path) -> Iterator[Entry]:
    for number, item in enumerate(_read_list(path), 1):
        where = f"{path}: source {number}"
        if not isinstance(item, dict) or not isinstance(item.get("path"), str):
            raise UsageError(f"{where}: expected `path:` and settings, found {redacted(repr(item))}")
        place = Address(item["path"])
        if place.has_secrets:
            raise UsageError(f"{where}: {place}: expected an address without user, password and query")
        values = {n: v for n, v in item.items() if n not in ("path", "labels")}
        labels = item.get("labels", {})
        if not isinstance(labels, dict):
            raise UsageError(f"{where}: labels: expected name: value, found {labels!r}")
        values |= {f"{LABEL}{name}": value for name, value in labels.items()}
        for name, value in values.items():
            if not isinstance(name, str) or not isinstance(value, str):
                raise UsageError(f"{where}: {name}: expected a single value, found {value!r}")
        yield Entry(_beside(path, item["path"]), _settings(values, where))


def _read_list(path: Path) -> list[Any]:
    import yaml

    try:
        text = given_text(path, "a YAML file of sources", shown=f"--sources {path}", most_bytes=_MOST_BYTES)
        value = plain_yaml(text)
    except DataError:
        raise
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        what = "no such file" if isinstance(error, OSError) else yaml_problem(error)
        raise DataError(f"--sources {path}: expected a YAML file of sources; {what}") from error
    found = value.get("sources") if isinstance(value, dict) else None
    if not isinstance(found, list) or not found or len(value) > 1:
        raise UsageError(f"--sources {path}: expected `sources:` and a list of `path:` and settings")
    return found


def _beside(path: Path, place: str) -> str:
    """Return a place; a relative one is relative to the sources file."""
    return place if "://" in place else str(path.parent / Path(place).expanduser())
