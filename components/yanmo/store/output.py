"""A committed output, of which nothing is used that does not match its manifest; and the pause that is passed
on in its place.
"""

from __future__ import annotations

import fnmatch
import hashlib
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from yanmo.common.errors import DataError, UsageError
from yanmo.common.given_file import json_value
from yanmo.common.names import maker_of
from yanmo.store.manifest import FileEntry, Manifest, Reference
from yanmo.store.objects import Damaged, ObjectStore, Wanted, is_name
from yanmo.store.record import Record, utc_now

KEY = re.compile(r"[0-9a-f]{64}")
SHORTEST_KEY = 4
"""Digits that are enough to name an output, where no other begins with them."""
_DIGITS = re.compile(rf"[0-9a-f]{{{SHORTEST_KEY},63}}")


def manifest_name(stage: str, key: str) -> str:
    """Return the name of a key's manifest in its store."""
    return f"cas/{stage}/{key}/MANIFEST.json"


class Output:
    """One committed output of a store.

    `path` and `paths` verify a file's size and sha256 the first time they hand it out.
    """

    def __init__(self, store: ObjectStore, manifest: Manifest, reference: Reference) -> None:
        self.store = store
        self.manifest = manifest
        self.reference = reference
        self._local: dict[str, Path] = {}

    @property
    def content_digest(self) -> str:
        return self.manifest.content_digest

    def __str__(self) -> str:
        return f"{self.manifest.stage}/{self.manifest.key[:12]}"

    def entries(self, pattern: str = "*") -> list[FileEntry]:
        """Return the files whose path matches the shell pattern, sorted by path."""
        found = [f for f in self.manifest.files if fnmatch.fnmatchcase(f.path, pattern)]
        return sorted(found, key=lambda f: f.path)

    def paths(self, pattern: str) -> list[Path]:
        """Verified local paths of the files that match, sorted.

        Raises:
            DataError: no file matches, or one is missing, short or changed.
        """
        entries = self.entries(pattern)
        if not entries:
            have = ", ".join(f.path for f in self.manifest.files[:10])
            raise DataError(f"{self}: no file {pattern!r}; it holds {have}: name one of them")
        wanted = [e for e in entries if not self._is_here(e)]
        try:
            found = self.store.fetch([self.wanted(e) for e in wanted])
        except Damaged as error:
            again = f"run the {maker_of(self.manifest.stage)} stage again with --force, or restore the file"
            raise DataError(f"{error}; {again}") from error
        self._local |= {entry.path: path for entry, path in zip(wanted, found, strict=True)}
        return [self._local[entry.path] for entry in entries]

    def path(self, name: str) -> Path:
        """Return the verified local path of the one file called `name`; raises as `paths`."""
        return self.paths(name)[0]

    def missing(self) -> str | None:
        """Return in words which file is absent or of the wrong size; None when all are there."""
        names = [self._name(entry) for entry in self.manifest.files]
        for entry, name, size in zip(self.manifest.files, names, self.store.sizes(names), strict=True):
            if size != entry.bytes:
                shown = "missing" if size is None else f"{size} bytes"
                return f"{name}: expected {entry.bytes} bytes, found {shown}"
        return None

    def is_damaged(self) -> bool:
        """Return whether an object in the store, not a cached copy of it, differs from the manifest."""
        for entry in self.manifest.files:
            found = self.store.digest(self._name(entry))
            if found is None or (found.bytes, found.sha256) != (entry.bytes, entry.sha256):
                return True
        return False

    def part(self, name: str) -> Output:
        """Return the part that was committed with this output as `name` (a tokenizer, say)."""
        if name not in self.manifest.references:
            maker = maker_of(self.manifest.stage)
            raise DataError(f"{self}: has no part {name!r}; run the {maker} stage again")
        return open_reference(self.store, Reference(**self.manifest.references[name]))

    def input(self, name: str) -> Output | None:
        """Return the output this one was made from as input `name`; None when it had none."""
        value = self.manifest.inputs.get(name)
        if not value or "manifest_uri" not in value:
            return None
        return open_reference(self.store, Reference(**value))

    def _is_here(self, entry: FileEntry) -> bool:
        """Return whether the file was verified before and still has its size."""
        path = self._local.get(entry.path)
        return path is not None and path.is_file() and path.stat().st_size == entry.bytes

    def wanted(self, entry: FileEntry) -> Wanted:
        """Return the object that holds a file."""
        return Wanted(self._name(entry), entry.bytes, entry.sha256)

    def _name(self, entry: FileEntry) -> str:
        return f"cas/{self.manifest.stage}/{self.manifest.key}/{self.manifest.attempt}/{entry.path}"


def find_output(store: ObjectStore, stage: str, key: str) -> Output | None:
    """Return the committed output of a key, or None."""
    return _read_output(store, stage, key, manifest_name(stage, key))


def find_by_digits(store: ObjectStore, stage: str, digits: str) -> Output | None:
    """Return the committed output of a stage whose key begins with `digits`; None if there is none.

    With fewer than all 64 digits it lists what the stage has made.

    Raises:
        UsageError: several keys begin so.
    """
    if KEY.fullmatch(digits):
        return find_output(store, stage, digits)
    if not _DIGITS.fullmatch(digits) or not is_name(f"cas/{stage}"):
        return None
    folders = (info.name.split("/") for info in store.list(f"cas/{stage}"))
    keys = sorted({n[2] for n in folders if n[2].startswith(digits) and n[3:] == ["MANIFEST.json"]})
    if len(keys) > 1:
        some = ", ".join(key[:16] for key in keys[:5])
        raise UsageError(f"{stage}/{digits}: could be {some}; give more digits")
    return find_output(store, stage, keys[0]) if keys else None


def superseded_name(stage: str, key: str, manifest_sha256: str) -> str:
    """Return the name of a manifest that `--force` has replaced."""
    return f"cas/{stage}/{key}/MANIFEST-{manifest_sha256[:12]}.json"


def _read_output(store: ObjectStore, stage: str, key: str, name: str) -> Output | None:
    try:
        data, _ = store.read(name)
    except FileNotFoundError:
        return None
    manifest = check_manifest_at(data, store.uri, name)
    reference = Reference(
        stage=stage,
        key=key,
        manifest_uri=manifest_name(stage, key),
        manifest_sha256=hashlib.sha256(data).hexdigest(),
        content_digest=manifest.content_digest,
    )
    return Output(store, manifest, reference)


def check_manifest_at(data: bytes, store_uri: str, name: str) -> Manifest:
    """Return the manifest in `data`, which lies at `name` below `cas/<stage>/<key>/` and must be of that key.

    Raises:
        DataError: it is damaged, changed, or the manifest of another key.
    """
    _, stage, key, _ = name.split("/")
    where = f"{store_uri}/{name}"
    manifest = Manifest.from_json(data, where)
    if (manifest.stage, manifest.key) != (stage, key):
        raise DataError(
            f"{where}: is the manifest of {manifest.stage}/{manifest.key}: it was exchanged with another "
            f"file or restored to the wrong place; restore it, or run the {stage} stage again with --force"
        )
    return manifest


def open_reference(store: ObjectStore, reference: Reference) -> Output:
    """Return the output that `reference` pins, also where `--force` has put other content in its place since.

    Raises:
        DataError: its manifest is missing or no longer holds what the reference pins.
    """
    stage, key = reference.stage, reference.key
    kept_name = superseded_name(stage, key, reference.manifest_sha256)
    found = None
    # Twice: gc sets a manifest aside under the second name and, where it is needed, puts it back.
    for name in (reference.manifest_uri, kept_name, reference.manifest_uri):
        found = _read_output(store, stage, key, name) or found
        if found is not None and found.content_digest == reference.content_digest:
            return found
    where = f"{store.uri}/{reference.manifest_uri}"
    if found is None:
        raise DataError(f"{where}: no such output; run the {maker_of(stage)} stage again")
    raise DataError(
        f"{where}: holds content {found.content_digest[:16]}..., the reference pins "
        f"{reference.content_digest[:16]}...; run the {maker_of(stage)} stage again"
    )


def read_json(output: Output, name: str) -> dict:  # type: ignore[type-arg]
    """Return the JSON object in the file `name` of `output`, verified."""
    value = json_value(output.path(name).read_text(encoding="utf-8"))
    if not isinstance(value, dict):
        raise DataError(f"{output}: {name}: expected a JSON object")
    return value


@dataclass(frozen=True, kw_only=True)
class Pause:
    """Why a stage's work stopped; what it made is kept below `runs/`, and the same command goes on there."""

    where: str
    """How far it had come: `step 120 of 450`."""
    why: str
    """What ended it: `--max-seconds 60`."""
    is_planned: bool = True
    """Whether its own hours were over. Somebody else (a drained node, a deleted pod) may have stopped it: a
    Job must not count that as success."""

    def __post_init__(self) -> None:
        if not (self.where and self.why):
            raise ValueError("a pause says where it is, and why")


@dataclass(frozen=True, kw_only=True)
class PausedOutput:
    """What is passed on in the place of a reference: no output was committed, no pointer moved."""

    status: Literal["paused"] = "paused"
    stage: str
    key: str
    where: str
    why: str
    at: str
    """UTC, ISO 8601."""

    @classmethod
    def of(cls, stage: str, key: str, pause: Pause) -> PausedOutput:
        """That `stage` paused now while it made `key`."""
        return cls(stage=stage, key=key, where=pause.where, why=pause.why, at=utc_now())

    def __str__(self) -> str:
        return f"{self.stage}/{self.key[:12]} is paused at {self.where} ({self.why})"

    def to_json(self) -> str:
        return _PAUSED.to_json(self).decode()

    @classmethod
    def from_json(cls, text: str | bytes) -> PausedOutput | None:
        """Return the pause that `text` records; None where it is something else."""
        try:
            return _PAUSED.parse(text, "a pause")
        except DataError:
            return None


_PAUSED = Record("yanmo.pause/1", PausedOutput)
