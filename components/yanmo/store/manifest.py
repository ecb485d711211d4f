"""Manifests, references and keys: what an output is, and how to name it.

A key says what would be made (stage, revision, semantic options, digests of the inputs); a content
digest says what was made. Two keys may give one digest, and then nothing downstream runs again.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from yanmo.common.errors import DataError
from yanmo.store.objects import MAX_DOCUMENT_BYTES, is_name
from yanmo.store.record import built, shown
from yanmo.store.schema import MAX_REFERENCE_BYTES as MAX_REFERENCE_BYTES
from yanmo.store.schema import OtherSchema, parse

MANIFEST_SCHEMA = "yanmo.manifest/1"
REFERENCE_SCHEMA = "yanmo.reference/1"
MAKE_AGAIN = "restore it, or run the stage that made it again, with --force"
"""What to do about a damaged manifest: the message comes from stages that only read the output."""
Role = Literal["content", "record"]
_HEX = re.compile(r"[0-9a-f]{64}\Z")
_STAGE = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}\Z")
_ATTEMPT = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}\Z")
_FILE_FIELDS = frozenset({"path", "bytes", "sha256", "role"})


def canonical(value: Any) -> bytes:
    """`value` as JSON with sorted keys and no spaces: equal values, equal bytes."""
    return json.dumps(
        value, ensure_ascii=False, sort_keys=True, separators=(",", ":"), allow_nan=False
    ).encode()


def digest(value: Any) -> str:
    """sha256 of the canonical JSON of `value`, hexadecimal."""
    return hashlib.sha256(canonical(value)).hexdigest()


def make_key(stage: str, revision: int, semantic: dict[str, Any], inputs: dict[str, str]) -> str:
    """Return the key of an output: 64 hexadecimal digits.

    Args:
        stage: name of the stage or part.
        revision: its revision.
        semantic: options that change the output.
        inputs: input name -> content digest.
    """
    return digest({"stage": stage, "revision": revision, "options": semantic, "inputs": inputs})


def file_sha256(path: Path) -> str:
    """sha256 of a file's bytes, hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@dataclass(frozen=True, kw_only=True)
class FileEntry:
    """One file of an output; `path` is relative to the attempt."""

    path: str
    bytes: int
    sha256: str
    role: Role


@dataclass(frozen=True, kw_only=True)
class Reference:
    """What passes between stages: a few hundred bytes that name and pin one output.

    `manifest_uri` is relative to the store, so that a store can be moved.
    """

    schema: str = REFERENCE_SCHEMA
    stage: str
    key: str
    manifest_uri: str
    manifest_sha256: str
    content_digest: str

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str | bytes, where: str) -> Reference:
        """Parse a reference read from `where`.

        Raises:
            DataError: it is not one, or of a schema this version does not know.
        """
        try:
            return cls.from_dict(parse(text, REFERENCE_SCHEMA, MAX_REFERENCE_BYTES))
        except OtherSchema as error:
            raise DataError(f"{where}: {error}") from error
        except ValueError as error:
            raise DataError(
                f"{where}: not a reference to an output: {error}; give a file that --reference-out wrote, or "
                "STAGE/KEY"
            ) from error

    @classmethod
    def from_dict(cls, values: Any) -> Reference:
        """Make a reference from the fields of a parsed document.

        Raises:
            ValueError: they are not a reference's.
        """
        if not isinstance(values, dict) or values.keys() != cls.__dataclass_fields__.keys():
            raise ValueError(f"expected the fields of a reference, found {shown(values)}")
        _check_texts(values, {"stage": _STAGE, "key": _HEX, "manifest_sha256": _HEX, "content_digest": _HEX})
        expected = f"cas/{values['stage']}/{values['key']}/MANIFEST.json"
        if (values["schema"], values["manifest_uri"]) != (REFERENCE_SCHEMA, expected):
            raise ValueError(f"manifest_uri is {shown(values['manifest_uri'])}, expected {expected!r}")
        return cls(**values)


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """The only commit marker of an output, written last."""

    stage: str
    key: str
    revision: int
    attempt: str
    files: tuple[FileEntry, ...]
    counts: dict[str, Any]
    """Content counts (documents, tokens, characters by genre): part of the content digest."""
    metadata: dict[str, Any] = field(default_factory=dict)
    """Anything else a reader may want (text form, vocabulary size): not in the digest."""
    options: dict[str, Any] = field(default_factory=dict)
    execution: dict[str, Any] = field(default_factory=dict)
    inputs: dict[str, Any] = field(default_factory=dict)
    """Input name -> reference, or {"content_digest", "uri"} of raw files."""
    references: dict[str, Any] = field(default_factory=dict)
    """Output name -> reference of the parts this output was committed with."""
    run_id: str = ""
    created_at: str = ""
    content_digest: str = ""
    schema: str = MANIFEST_SCHEMA

    @property
    def expected_key(self) -> str:
        """The key that revision, options and inputs in here make: `key`, unless one of them was changed."""
        digests = {name: value["content_digest"] for name, value in self.inputs.items() if value}
        return make_key(self.stage, self.revision, self.options, digests)

    def to_json(self) -> bytes:
        return sealed(json.dumps(asdict(self), ensure_ascii=False, indent=1).encode())

    @classmethod
    def from_json(cls, data: bytes, where: str) -> Manifest:
        """Parse the manifest read from `where`.

        Raises:
            DataError: it is damaged, or of a schema this version does not know.
        """
        try:
            values = parse(unsealed(data), MANIFEST_SCHEMA, MAX_DOCUMENT_BYTES)
            files = _files(values.pop("files", None))
            made: Manifest = built(cls, {**values, "files": []})
            _check_texts(values, {"stage": _STAGE, "key": _HEX, "attempt": _ATTEMPT, "content_digest": _HEX})
            for given in made.references.values():
                Reference.from_dict(given)
            for given in made.inputs.values():
                if given is None:
                    continue
                if not isinstance(given, dict) or not _HEX.match(str(given.get("content_digest"))):
                    raise ValueError(f"expected a reference or a content_digest, found {shown(given)}")
                if "manifest_uri" in given:
                    Reference.from_dict(given)
            if made.revision < 0:
                raise ValueError(f"revision is {made.revision}")
            canonical([values[name] for name in ("counts", "options", "inputs") if name in values])
        except OtherSchema as error:
            raise DataError(f"{where}: {error}") from error
        except ValueError as error:
            raise DataError(f"{where}: damaged manifest ({error}); {MAKE_AGAIN}") from error
        return dataclasses.replace(made, files=files)


def _check_texts(values: dict[str, Any], patterns: dict[str, re.Pattern[str]]) -> None:
    for name, pattern in patterns.items():
        if not isinstance(values.get(name), str) or not pattern.match(values[name]):
            raise ValueError(f"{name} is {shown(values.get(name))}")


def _files(value: Any) -> tuple[FileEntry, ...]:
    """The files of a manifest, of which there may be 100,000: their own loop takes a third of `built`'s time.

    Raises:
        ValueError: an entry is malformed, or listed twice.
    """
    if not isinstance(value, list):
        raise ValueError(f"files: expected a list, found {shown(value)}")
    for entry in value:
        if not isinstance(entry, dict) or entry.keys() != _FILE_FIELDS:
            raise ValueError(f"files: expected {', '.join(sorted(_FILE_FIELDS))}, found {shown(entry)}")
        path, size, sha256 = entry["path"], entry["bytes"], entry["sha256"]
        if not isinstance(path, str) or not is_name(path):
            raise ValueError(f"files: refused object name {shown(path)}")
        if type(size) is not int or size < 0 or entry["role"] not in ("content", "record"):
            raise ValueError(f"files: {path}: bytes is {shown(size)}, role is {shown(entry['role'])}")
        if not isinstance(sha256, str) or not _HEX.match(sha256):
            raise ValueError(f"files: {path}: sha256 is {shown(sha256)}")
    if len({entry["path"] for entry in value}) < len(value):
        raise ValueError("files: a path is listed twice")
    return tuple(FileEntry(**entry) for entry in value)


_SEAL = re.compile(rb',\n "sealed": "([0-9a-f]{64})"\n\}\n\Z')


def sealed(document: bytes) -> bytes:
    """A JSON object (as `json.dumps(indent=1)` ends it) with the sha256 of its own bytes as its last field.

    The content digest covers what readers use; the seal also covers what tools rely on (inputs, options).
    """
    mark = hashlib.sha256(document).hexdigest().encode()
    return document.removesuffix(b"\n}") + b',\n "sealed": "' + mark + b'"\n}\n'


def is_sealed(data: bytes) -> bool:
    """Return whether a document ends in a seal; `unsealed` says whether the seal is right."""
    return _SEAL.search(data, max(0, len(data) - 200)) is not None


def unsealed(data: bytes) -> bytes:
    """Return the document that `sealed` was given; one without a seal as it is: readers check it.

    Raises:
        ValueError: a byte changed since it was sealed.
    """
    found = _SEAL.search(data, max(0, len(data) - 200))
    if found is None:
        return data
    document = data[: found.start()] + b"\n}"
    if hashlib.sha256(document).hexdigest().encode() != found[1]:
        raise ValueError("changed since it was written")
    return document


def content_digest(files: tuple[FileEntry, ...], counts: dict[str, Any]) -> str:
    """Digest of the content files (path, bytes, sha256) and counts; records do not enter."""
    content = sorted([f.path, f.bytes, f.sha256] for f in files if f.role == "content")
    return digest({"files": content, "counts": counts})
