"""Lists the raw files, with the digests that represent them in the key.

A file's sha256 is kept in the store by (URI, size, version), so that a second run over a terabyte does not
read it again to find that nothing changed.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from yanmo.common.errors import DataError, StorageError, UsageError
from yanmo.common.given_file import json_value
from yanmo.common.words import plural, some_of
from yanmo.curate.sources.entries import NO_SETTINGS, Settings, read_entries
from yanmo.curate.sources.raw_files import (
    Listing,
    RawFile,
    below,
    list_files,
    local_path,
    open_file,
    readable,
    reading,
    shown,
    stat_file,
)
from yanmo.store.manifest import digest
from yanmo.store.objects import AlreadyExists, Changed, ObjectStore

log = logging.getLogger(__name__)

FORMS = ("jsonl", "json", "parquet", "csv", "tsv", "txt", "md")
_EXPECTED = (
    "expected .jsonl, .json, .csv, .tsv, .txt, .md (each may end in .gz, .zst, .xz or .bz2) or .parquet"
)
_SAME = {"ndjson": "jsonl", "markdown": "md"}
_NAME = re.compile(
    r".*\.(?:(parquet)|(jsonl|ndjson|json|txt|md|markdown|csv|tsv)(?:\.(gz|zst|xz|bz2))?)\Z",
    re.IGNORECASE | re.DOTALL,
)
_HASHED_AT_A_TIME = 1 << 20
SMALL_BYTES = 64 << 10
"""A file below this is small."""
MANY_SMALL = 100
"""More small files than this are read in bundles; fewer one by one, so that a change costs one."""
_MOST_FILES, _MOST_BYTES = 1024, 8 << 20
"""Of a bundle."""
_CUT = 256
"""A bundle ends after one file in so many, chosen by its digest: a new file changes only its own bundle."""


@dataclass(frozen=True, kw_only=True)
class Source:
    """One raw file as it was listed, or when its digest was computed."""

    uri: str
    name: str
    """The file's path below its place of `--sources`."""
    form: str
    """One of FORMS."""
    compression: str
    """gz, zst, xz, bz2, or empty."""
    bytes: int
    version: str
    sha256: str = ""
    """Empty where it is only looked at: nothing that has a key is made from it."""
    settings: Settings = NO_SETTINGS

    @property
    def shown(self) -> str:
        """Its name in messages: the path if it has one."""
        return shown(self.uri)

    @property
    def identity(self) -> list[Any]:
        """Return its part of a key: its path below its place, bytes and settings, but not the place."""
        settings = [[list(pair) for pair in self.settings.values]] if self.settings.values else []
        return [self.name, self.sha256, *settings]

    def check_unchanged(self) -> None:
        """Raise `StorageError` if the file has changed since its digest was computed."""
        now = stat_file(self.uri)
        if (now.bytes, now.version) != (self.bytes, self.version):
            raise StorageError(
                f"{self.shown}: changed while it was read; run the same command again when nothing "
                "writes to it"
            )


def form_of(name: str) -> tuple[str, str] | None:
    """Form and compression by a file's name; None where nothing reads it."""
    found = _NAME.match(name)
    if not found:
        return None
    ending = (found[1] or found[2]).lower()
    return _SAME.get(ending, ending), (found[3] or "").lower()


def find_files(
    sources: str,
    option: str = "--sources",
    *,
    follow_links: bool = False,
    quiet: bool = False,
) -> list[Source]:
    """Return the files that `--sources` (or `option`) names, sorted, each once; log what is left out.

    Args:
        follow_links: whether symbolic links may lead outside of a folder.
        quiet: whether what is left out is said elsewhere.

    Raises:
        DataError: an entry matches nothing, or nothing that can be read as text.
        UsageError: an unknown URI scheme, or two entries with different settings for one file.
    """
    found: dict[str, Source] = {}
    left = LeftOut()
    how = Listing(leave_out=left.add, follow_links=follow_links)
    for entry in read_entries(sources):
        path_of = below(entry.place)
        for file in _readable(entry.place, option, how, left):
            one = _source(file, path_of(file.uri), entry.settings)
            known = found.setdefault(file.same_as or file.uri, one)
            if known.settings != entry.settings:
                raise UsageError(
                    f"{option} names {file.uri} twice, with {dict(known.settings.values)} and with "
                    f"{dict(entry.settings.values)}: leave one out"
                )
    chosen = _with_bytes(sorted(found.values(), key=lambda source: source.uri), left)
    if not quiet:
        left.say()
    return chosen


def _source(file: RawFile, name: str, settings: Settings) -> Source:
    form = form_of(file.name)
    assert form is not None, file.uri
    return Source(
        uri=file.uri,
        name=name,
        form=form[0],
        compression=form[1],
        bytes=file.bytes,
        version=file.version,
        settings=settings,
    )


class LeftOut:
    """What is not read, by name: all of it is said, once."""

    def __init__(self) -> None:
        self._by_reason: dict[str, dict[str, None]] = {}
        self._kinds: Counter[str] = Counter()

    def add(self, path: str, why: str) -> None:
        """Note that `path` is left out."""
        self._by_reason.setdefault(why, {})[path] = None

    def add_kind(self, name: str) -> None:
        """Note that a file is left out as nothing reads what is called like it."""
        base, dot, ending = name.rpartition(".")
        self._kinds[f".{ending.lower()}" if base and dot and len(ending) <= 10 else "without an ending"] += 1

    def say(self) -> None:
        """Log it."""
        for why, paths in sorted(self._by_reason.items()):
            log.warning("left out, %s: %s", why, some_of(list(paths)))
        if self._kinds:
            kinds = ", ".join(f"{kind} {number:,}" for kind, number in self._kinds.most_common(20))
            files = plural(self._kinds.total(), "file")
            log.warning("%s of other kinds left out: %s; %s", files, kinds, _EXPECTED)


def _readable(place: str, option: str, how: Listing, left: LeftOut) -> list[RawFile]:
    try:
        files = list_files(place, how)
    except DataError as error:
        raise DataError(f"{str(error).replace('--sources', option, 1)}; {_EXPECTED}") from error
    chosen = [file for file in files if form_of(file.name)]
    if not chosen:
        is_file = len(files) == 1 and "://" not in place and local_path(place).is_file()
        what = "its name has no known extension" if is_file else "no files there that can be read"
        raise DataError(f"{option} {readable(place)}: {what}; {_EXPECTED}")
    for file in files:
        if not form_of(file.name):
            left.add_kind(file.name)
    return chosen


def _with_bytes(files: list[Source], left: LeftOut) -> list[Source]:
    """Return the files without the empty ones; all of them where all are empty.

    A folder that others write into has a file at times whose upload has only begun. It is taken when it has
    text; a night does not end for it. A file that has no other beside it is refused later, by its name.
    """
    full = [source for source in files if source.bytes]
    for source in files if full else ():
        if not source.bytes:
            left.add(source.shown, "as it is empty; it is taken once it has text")
    return full or files


def _are_many_small(sizes: Iterable[int]) -> bool:
    """Return whether files of these sizes, in bytes, are read in bundles where they are small."""
    return sum(size < SMALL_BYTES for size in sizes) > MANY_SMALL


def bundles(sources: Sequence[Source]) -> list[tuple[Source, ...]]:
    """Return the files in their order, as those that are read into one output each.

    An output costs the store about twenty syncs to disk, whatever its size: 1,000 files of 152 bytes took
    219 s one by one; 50,000 take 38 s in bundles (two shared cores).
    """
    if not _are_many_small(source.bytes for source in sources):
        return [(source,) for source in sources]
    return list(_cut(sources))


def _cut(sources: Sequence[Source]) -> Iterator[tuple[Source, ...]]:
    found, size = list[Source](), 0
    for source in sources:
        if source.bytes >= SMALL_BYTES and found:
            yield tuple(found)
            found, size = [], 0
        found.append(source)
        size += source.bytes
        is_full = len(found) == _MOST_FILES or size > _MOST_BYTES or source.bytes >= SMALL_BYTES
        if is_full or int(source.sha256[:8], 16) % _CUT == 0:
            yield tuple(found)
            found, size = [], 0
    if found:
        yield tuple(found)


def digest_files(store: ObjectStore, files: Iterable[Source], *, again: bool = False) -> list[Source]:
    """Return every file with its sha256, from the store's record if size and time are unchanged.

    Args:
        again: whether all are read, whatever the record says (`--force`).

    Raises:
        DataError: a file is empty or cannot be read.
    """
    chosen = list(files)
    many = _are_many_small(source.bytes for source in chosen)  # a record costs more than reading them
    return [_digest_file(store, one, many and one.bytes < SMALL_BYTES, again) for one in chosen]


def _digest_file(store: ObjectStore, file: Source, at_once: bool, again: bool) -> Source:
    seen = {"uri": file.uri, "bytes": file.bytes, "version": file.version}
    name = f"sources/{hashlib.sha256(file.uri.encode()).hexdigest()}.json"
    old, version = ({}, "") if at_once else _remembered(store, name)
    sha256 = old.get("sha256") if not again and {k: old.get(k) for k in seen} == seen else None
    source = replace(file, sha256=sha256 if isinstance(sha256, str) else file_digest(file.uri))
    if not file.bytes:
        raise DataError(f"{source.shown}: is empty, as all of --sources: give files with text")
    if source.sha256 != sha256 and not at_once:
        _remember(store, name, version, {**seen, "sha256": source.sha256})
    source.check_unchanged()
    return source


def file_digest(uri: str) -> str:
    """Return the sha256 of a file's bytes.

    Raises:
        DataError: it cannot be read.
    """
    result = hashlib.sha256()
    with open_file(uri) as file, reading(shown(uri)):
        while chunk := file.read(_HASHED_AT_A_TIME):
            result.update(chunk)
    return result.hexdigest()


def _remembered(store: ObjectStore, name: str) -> tuple[dict[str, Any], str]:
    try:
        data, version = store.read(name)
    except FileNotFoundError:
        return {}, ""
    try:
        value = json_value(data)
    except ValueError:
        value = {}  # damaged: it is only a cache
    return (value if isinstance(value, dict) else {}), version


def _remember(store: ObjectStore, name: str, version: str, value: dict[str, Any]) -> None:
    data = json.dumps(value).encode()
    try:
        if version:
            store.replace(name, data, version)
        else:
            store.create(name, data)
    except (AlreadyExists, Changed):
        log.debug("another run remembered %s first", value["uri"])


def sources_input(sources: list[Source]) -> dict[str, Any]:
    """Return the raw files as an input of a key: paths below their places, bytes, settings, unordered."""
    files = sorted([[s.name, s.sha256, s.bytes, *s.identity[2:]] for s in sources], key=repr)
    return {
        "content_digest": digest(files),
        "uri": ", ".join(s.uri for s in sources[:20]),
        "files": [
            {"name": n, "sha256": sha, "bytes": size, **({"settings": settings[0]} if settings else {})}
            for n, sha, size, *settings in files
        ],
    }
