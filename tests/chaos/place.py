"""A store, and the one way to look at all of it and to compare: without the product's own code."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import shutil
import time
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from servers.s3 import S3Server


@dataclass
class FilePlace:
    """A folder."""

    root: Path

    @classmethod
    def new(cls, folder: Path) -> FilePlace:
        """An empty store in `folder`."""
        return cls(folder / f"store-{uuid.uuid4().hex[:8]}")

    @property
    def uri(self) -> str:
        return self.root.as_uri()

    @property
    def scratch(self) -> Path:
        """Local folder of work in progress and of the read cache."""
        return self.root.with_name(f"{self.root.name}-scratch")

    def names(self) -> list[str]:
        """Every object, temporary files included, sorted; names are relative to the store."""
        found = (p.relative_to(self.root).as_posix() for p in self.root.rglob("*") if p.is_file())
        return sorted(name for name in found if not name.startswith(".locks/"))

    def uploads(self) -> list[str]:
        """Names of objects whose upload in parts was begun and neither ended nor given up."""
        return []

    def read(self, name: str) -> bytes:
        """An object's bytes."""
        return (self.root / name).read_bytes()

    def write(self, name: str, data: bytes) -> None:
        """Overwrite an object: damage, or a restored original."""
        path = self.root / name
        if not path.exists():  # removed by what is tried
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
            return
        mode = path.stat().st_mode
        path.chmod(0o644)
        path.write_bytes(data)
        path.chmod(mode)

    def delete(self, names: list[str]) -> None:
        for name in names:
            (self.root / name).unlink(missing_ok=True)

    def backdate(self, seconds: float) -> bool:
        """Make every object older; False where only time can."""
        for path in self.root.rglob("*"):
            with contextlib.suppress(FileNotFoundError):  # a run goes on beside us
                status = path.stat()
                os.utime(path, (status.st_atime, min(status.st_mtime, time.time() - seconds)))
        return True

    def environment(self) -> dict[str, str]:
        """What a stage's process needs to reach the store."""
        return {"YANMO_SCRATCH": str(self.scratch)}

    def remove(self) -> None:
        """Remove everything, scratch too."""
        shutil.rmtree(self.root, ignore_errors=True)
        shutil.rmtree(self.scratch, ignore_errors=True)


@dataclass
class S3Place:
    """A prefix in a bucket of a real server."""

    server: S3Server
    bucket: str
    prefix: str
    scratch: Path
    endpoint: str = ""
    """Another way there (a proxy) for stages; our own looks go straight."""

    @classmethod
    def new(cls, server: S3Server, where: str, folder: Path) -> S3Place:
        """An empty store below `where` (`bucket` or `bucket/prefix`)."""
        bucket, _, above = where.partition("/")
        name = f"store-{uuid.uuid4().hex[:8]}"
        return cls(server, bucket, f"{above}/{name}".strip("/"), folder / f"{name}-scratch")

    @property
    def uri(self) -> str:
        return f"s3://{self.bucket}/{self.prefix}"

    def names(self) -> list[str]:
        listed = self.client.list_objects(self.bucket, prefix=f"{self.prefix}/", recursive=True)
        return sorted(item.object_name.removeprefix(f"{self.prefix}/") for item in listed)

    def uploads(self) -> list[str]:
        found = self.client._list_multipart_uploads(self.bucket, prefix=f"{self.prefix}/")
        return sorted(upload.object_name.removeprefix(f"{self.prefix}/") for upload in found.uploads)

    def read(self, name: str) -> bytes:
        answer = self.client.get_object(self.bucket, f"{self.prefix}/{name}")
        try:
            return bytes(answer.read())
        finally:
            answer.close()
            answer.release_conn()

    def write(self, name: str, data: bytes) -> None:
        self.client.put_object(self.bucket, f"{self.prefix}/{name}", io.BytesIO(data), len(data))

    def delete(self, names: list[str]) -> None:
        for name in names:
            self.client.remove_object(self.bucket, f"{self.prefix}/{name}")

    def backdate(self, seconds: float) -> bool:
        return False

    def environment(self) -> dict[str, str]:
        return {**self.server.environment(self.endpoint), "YANMO_SCRATCH": str(self.scratch)}

    def remove(self) -> None:
        shutil.rmtree(self.scratch, ignore_errors=True)
        self.delete(self.names())

    @property
    def client(self) -> Any:
        """The tests' own way to the server."""
        if "client" not in self.__dict__:
            self.__dict__["client"] = self.server.client()
        return self.__dict__["client"]


Place = FilePlace | S3Place


@dataclass
class Survey:
    """What a look at a whole store found."""

    manifests: dict[str, str]
    """Name of a committed manifest -> sha256 of its bytes."""
    digests: dict[str, str]
    """Pointer name -> content digest it pins."""
    reachable: set[str]
    """Names that some manifest, pointer or record accounts for."""
    names: set[str]
    faults: list[str]
    """Damage, in words."""


def survey(place: Place) -> Survey:
    """Check every committed output of a store, byte for byte, and what the pointers name.

    This is a second reading of docs/explanation/store.md: it shares no code with the product.
    """
    names = set(place.names())
    found = Survey({}, {}, set(), names, [])
    for name in sorted(names):
        parts = name.split("/")
        if parts[0] == "cas" and len(parts) == 4 and parts[3] == "MANIFEST.json":
            _survey_output(place, name, found)
        elif parts[0] == "pointers":
            _survey_pointer(place, name, found)
    numbers = sorted(int(n.split("/")[-1][:6]) for n in names if "/history/" in n and ".tmp-" not in n)
    if numbers != list(range(1, len(numbers) + 1)):
        found.faults.append(f"history has gaps: {numbers}")
    return found


def _survey_output(place: Place, name: str, found: Survey) -> None:
    data = place.read(name)
    found.manifests[name] = hashlib.sha256(data).hexdigest()
    found.reachable.add(name)
    try:
        manifest = json.loads(data)
        files = manifest["files"]
        content = sorted([f["path"], f["bytes"], f["sha256"]] for f in files if f["role"] == "content")
        value = {"files": content, "counts": manifest["counts"]}
        text = json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
        if hashlib.sha256(text.encode()).hexdigest() != manifest["content_digest"]:
            found.faults.append(f"{name}: its content digest is wrong")
        for file in files:
            path = f"{os.path.dirname(name)}/{manifest['attempt']}/{file['path']}"
            found.reachable.add(path)
            if path not in found.names:
                found.faults.append(f"{path}: is missing")
            elif hashlib.sha256(place.read(path)).hexdigest() != file["sha256"]:
                found.faults.append(f"{path}: is damaged")
    except (ValueError, KeyError, TypeError) as error:
        found.faults.append(f"{name}: is damaged ({error!r})")


def _survey_pointer(place: Place, name: str, found: Survey) -> None:
    if ".tmp-" in name:
        return
    found.reachable.add(name)
    try:
        value = json.loads(place.read(name))
        if "/runs/" in name:  # of a run id: input or stage -> reference
            references = list(value["outputs"].values())
        else:
            references = [value] if "manifest_uri" in value else [value["model"], value["evaluation"]]
        for reference in references:
            digest = json.loads(place.read(reference["manifest_uri"]))["content_digest"]
            if digest != reference["content_digest"]:
                found.faults.append(f"{name}: pins {reference['content_digest'][:12]}, found {digest[:12]}")
        if "manifest_uri" in value:
            found.digests[name] = value["content_digest"]
    except Exception as error:
        found.faults.append(f"{name}: cannot be followed ({error!r})")


def lost(before: Survey, after: Survey) -> list[str]:
    """What `before` had committed and `after` no longer has, or has otherwise."""
    return [
        f"{name}: {'changed' if name in after.manifests else 'gone'}"
        for name, sha256 in before.manifests.items()
        if after.manifests.get(name) != sha256
    ]


_KEPT = ("runs/", "sources/", "probes/", "nights/")
"""Work in progress, which its next run takes up, memories, and the pages of nights."""


def leftovers(found: Survey) -> list[str]:
    """Objects of the output tree that nothing accounts for, and files that were being written."""
    unnamed = found.names - found.reachable
    return sorted(n for n in unnamed if ".tmp-" in n or not n.startswith(_KEPT))
