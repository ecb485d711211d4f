"""What a worker of a Ray cluster does: one call, with its files."""

from __future__ import annotations

import functools
import hashlib
import os
import pickle
import socket
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import yanmo
from yanmo.common.freed_memory import trim_heap
from yanmo.common.workers import portable
from yanmo.engine.shared_files import FilesHere, Made, mark_worker, not_seen
from yanmo.store.objects import ObjectStore
from yanmo.store.opening import StoreSettings, open_store

_PACKAGES = (
    "numpy", "opencc", "orjson", "pyarrow", "rensa", "rjieba", "jieba", "tokenizers", "zstandard"
)  # fmt: skip
"""On whose versions the bytes of outputs depend."""
GUIDE = "docs/how-to/prepare-text.md"
VARIABLES = ("AWS_ENDPOINT_URL_S3", "YANMO_WAIT_SECONDS")
"""What a worker has from who asked for the work; credentials are the cluster's own."""


class Asked(NamedTuple):
    """What a worker is asked to do, as it travels."""

    task: bytes
    identity: dict[str, str]
    store: str
    endpoint: str
    scratch_gib: float
    proof: str
    """An object of the store, by which a worker knows that it sees the same one."""
    environment: dict[str, str]


class Answer(NamedTuple):
    """What comes back."""

    result: bytes = b""
    made: Made = []  # noqa: RUF012
    error: bytes = b""
    """A pickled exception, where the call raised one."""
    refused: str = ""
    """Why nothing was begun."""


@functools.cache
def identity() -> dict[str, str]:
    """Return what must be the same here and there for the same bytes: Python, packages, this program."""
    import importlib.metadata

    found = {"Python": ".".join(map(str, sys.version_info[:2]))}
    for name in _PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = "missing"
    root, code = Path(yanmo.__file__).parent, hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        code.update(f"{path.relative_to(root)}\0".encode() + path.read_bytes())
    return {**found, "Yanmo": code.hexdigest()[:12]}


def answer(asked: Asked, *sent: Any) -> Answer:
    """Do what was asked, unless this is not the place for it."""
    if os.environ.get("RAY_AUTH_MODE") != "token":
        return Answer(
            refused="the Ray cluster runs without token authentication: whoever reaches its ports runs "
            f"programs with the store's credentials. Start its nodes with RAY_AUTH_MODE=token ({GUIDE})"
        )
    mine = identity()
    other = [
        f"{name} {mine[name]} there, {its} here" for name, its in asked.identity.items() if mine[name] != its
    ]
    if other:
        return Answer(
            refused=f"node {socket.gethostname()} of the Ray cluster has another environment: "
            f"{', '.join(other)}. Both must come from one image, or one installation"
        )
    os.environ.update(asked.environment)
    mark_worker()
    try:
        files = FilesHere(_store(asked[2:6]), sent, _kept)
        try:
            function, arguments = files.task(asked.task)
            return Answer(*files.result(function(*arguments)))
        finally:
            files.close()
            trim_heap()
    except Exception as error:
        return Answer(error=pickle.dumps(portable(error)))


@functools.lru_cache(maxsize=2)
def _store(place: tuple[str, str, float, str]) -> ObjectStore:
    """Return the store, once it is known to be the same one.

    Raises:
        EnvironmentFault: it is another one.
    """
    uri, endpoint, scratch_gib, proof = place
    store = open_store(uri, StoreSettings(endpoint=endpoint, scratch_gib=scratch_gib))
    if store.stat(proof) is None:
        raise not_seen(uri)
    return store


_FOLDER: list[tempfile.TemporaryDirectory[str]] = []


def _kept(data: Any, name: str) -> Path:
    """Return a file of this process that holds an array of bytes, written once."""
    if not _FOLDER:
        _FOLDER.append(tempfile.TemporaryDirectory(prefix="yanmo-sent-"))
    path = Path(_FOLDER[0].name, hashlib.sha256(data).hexdigest(), name)
    if not path.exists():
        for other in sorted(path.parents[1].iterdir(), key=lambda p: p.stat().st_mtime)[:-3]:
            for file in other.iterdir():
                file.unlink()
            other.rmdir()
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data)
    return path
