"""The Secrets that say where the store is and who we are there, and a round trip through its bucket."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

from yanmo.common.errors import DataError, StorageError, UsageError
from yanmo.common.words import plural
from yanmo.store.objects import AlreadyExists, Changed, ObjectStore
from yanmo.store.opening import default_store, store_of
from yanmo_pipelines import resources
from yanmo_pipelines.cluster.checks.finding import Asked, Finding
from yanmo_pipelines.cluster.refusals import NotFound

_OWN_KEYS = (("access_key_id", "accesskey"), ("secret_access_key", "secretkey"))
_KFPS_KEYS = (("accesskey",), ("secretkey",))
"""What the two Secrets must hold; of each group one name (store/s3/credentials.py)."""
_KFPS = list(resources.SECRETS)[1]
_MOUNTED = resources.SECRETS[_KFPS]
_KFP_BUCKET = "minio://mlpipeline"
_MAKE = (
    "kubectl create secret generic {} --from-literal=access_key_id=... "
    "--from-literal=secret_access_key=... --from-literal=endpoint_url=http://... "
    "--from-literal=store=s3://bucket/prefix"
)


def secrets(asked: Asked) -> Iterator[Finding]:
    """The pods of a run find credentials for the store."""
    own, make = asked.options.store_secret, _MAKE.format(asked.options.store_secret)
    found = {name: _secret(asked, name) for name in (own, _KFPS)}
    where = f"in namespace {asked.kubernetes.namespace}"
    for name, names in found.items():
        if names is None:
            continue
        keys = _OWN_KEYS if name == own else _KFPS_KEYS
        missing = [" or ".join(group) for group in keys if not set(group) & names]
        if missing and not (name == own and not names & {n for g in keys for n in g}):
            yield Finding("secrets", "bad", f"Secret {name} {where} lacks {', '.join(missing)}", make)
        else:
            yield Finding("secrets", "ok", f"Secret {name} {where} holds {', '.join(sorted(names))}")
    if found[own] is None:
        if found[_KFPS] is None:
            said = f"neither Secret {own} nor KFP's {_KFPS} is {where}: pods have no credentials"
            yield Finding("secrets", "bad", said, make)
        else:
            yield Finding("secrets", "note", f"no Secret {own} {where}: runs use KFP's own bucket")


def _secret(asked: Asked, name: str) -> set[str] | None:
    """The names of a Secret's files; None where there is none."""
    path = asked.kubernetes.in_namespace("secrets", name)
    try:
        found = asked.kubernetes.get(path, f"look at Secret {name}")
    except NotFound:
        return None
    return set(found.get("data") or {})


def store(asked: Asked) -> Iterator[Finding]:
    """An object goes to the bucket and back, and of two writers of one name only the first wins."""
    try:
        uri = asked.options.store or default_store(_KFP_BUCKET if Path(_MOUNTED).is_dir() else "")
    except UsageError:
        said = "where the store is is not known here: its bucket was not tried"
        yield Finding("store", "left", said, "give --store, or --in-pod to try it from a pod of the cluster")
        return
    yield from _round_trip(store_of(asked.options, uri))


def _round_trip(place: ObjectStore) -> Iterator[Finding]:
    name, text = f"probes/doctor-{uuid.uuid4().hex}", "墨".encode()
    version = place.create(name, text)
    try:
        data, read_version = place.read(name)
        if data != text:
            raise DataError(
                f"{place.uri}: sent {plural(len(text), 'byte')}, got others back: use another store"
            )
        honours = _refuses(place, name) and _replaces(place, name, read_version or version)
    finally:
        place.delete(name)
    if honours:
        yield Finding("store", "ok", f"{place.uri}: written, read, removed; conditional writes are honoured")
    else:
        yield Finding(
            "store",
            "bad",
            f"{place.uri}: the server ignores conditional writes: two runs could both take one lease",
            "use a server that honours If-None-Match and If-Match: AWS, Ceph, MinIO, SeaweedFS from 3.97",
        )


def _refuses(place: ObjectStore, name: str) -> bool:
    """Return whether a second `create` of a name is refused."""
    try:
        place.create(name, b"again")
    except AlreadyExists:
        return True
    return False


def _replaces(place: ObjectStore, name: str, version: str) -> bool:
    """Return whether `replace` writes over the version that was read, and only over that."""
    try:
        place.replace(name, b"second", version)
    except StorageError:
        return False
    try:
        place.replace(name, b"third", version)
    except Changed:
        return True
    return False
