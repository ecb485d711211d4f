"""Manifests, references and keys: what an output is, and how to name it.

A key says what would be made (stage, revision, semantic options, digests of the inputs); a content
digest says what was made. Two keys may give one digest, and then nothing downstream runs again.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from yanmo.store.objects import MAX_DOCUMENT_BYTES
from yanmo.store.record import judging, parse, shown

MANIFEST_SCHEMA = "yanmo.manifest/1"
REFERENCE_SCHEMA = "yanmo.reference/1"
MAX_REFERENCE_BYTES = 4096
MAKE_AGAIN = "restore it, or run the stage that made it again, with --force"
"""What to do about a damaged manifest: the message comes from stages that only read the output."""
Role = Literal["content", "record"]
_HEX = re.compile(r"[0-9a-f]{64}\Z")
_STAGE = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}\Z")


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
    def from_json(
        cls,
        text: str | bytes,
        where: str,
        mend: str = "give STAGE/KEY, or a file that holds a pointer",
    ) -> Reference:
        """Parse a reference read from `where`.

        Args:
            mend: what to do about one that is none.

        Raises:
            DataError: it is not one, or of a schema this version does not know.
        """
        with judging(where, "not a reference to an output: {}", mend):
            return cls.from_dict(parse(text, REFERENCE_SCHEMA, MAX_REFERENCE_BYTES))

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

    def to_json(self) -> bytes:
        return sealed(json.dumps(asdict(self), ensure_ascii=False, indent=1, allow_nan=False).encode())

    @classmethod
    def from_json(cls, data: bytes, where: str) -> Manifest:
        """Parse the manifest read from `where`; its seal says that it is as it was written.

        Raises:
            DataError: it is damaged, or of a schema this version does not know.
        """
        with judging(where, "damaged manifest ({})", MAKE_AGAIN):
            values = parse(data, MANIFEST_SCHEMA, MAX_DOCUMENT_BYTES)
            unsealed(data)
            del values["sealed"]
            return cls(**{**values, "files": tuple(FileEntry(**each) for each in values["files"])})


def _check_texts(values: dict[str, Any], patterns: dict[str, re.Pattern[str]]) -> None:
    for name, pattern in patterns.items():
        if not isinstance(values.get(name), str) or not pattern.match(values[name]):
            raise ValueError(f"{name} is {shown(values.get(name))}")


_SEAL = re.compile(rb',\n "sealed": "([0-9a-f]{64})"\n\}\n\Z')


def sealed(document: bytes) -> bytes:
    """Return a JSON object (as `json.dumps(indent=1)` ends it) with its own sha256 as its last field.

    The content digest covers what readers use; the seal also covers what tools rely on (inputs, options).
    """
    mark = hashlib.sha256(document).hexdigest().encode()
    return document.removesuffix(b"\n}") + b',\n "sealed": "' + mark + b'"\n}\n'


def unsealed(data: bytes) -> bytes:
    """Return the document that `sealed` was given.

    Raises:
        ValueError: a byte changed since it was sealed, or it has no seal.
    """
    found = _SEAL.search(data, max(0, len(data) - 200))
    document = data[: found.start()] + b"\n}" if found else b""
    if not found or hashlib.sha256(document).hexdigest().encode() != found[1]:
        raise ValueError("changed since it was written")
    return document


def content_digest(files: tuple[FileEntry, ...], counts: dict[str, Any]) -> str:
    """Digest of the content files (path, bytes, sha256) and counts; records do not enter."""
    content = sorted([f.path, f.bytes, f.sha256] for f in files if f.role == "content")
    return digest({"files": content, "counts": counts})
