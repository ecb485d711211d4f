"""From an address to the store that speaks its scheme."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote, urlsplit

from yanmo.common.errors import UsageError
from yanmo.store.objects import ObjectStore
from yanmo.store.settings import StoreSettings


def open_store(uri: str, settings: StoreSettings | None = None) -> ObjectStore:
    """The store at `uri`: a folder, `file:///path`, `s3://bucket/prefix` or KFP's `minio://bucket/prefix`.

    Args:
        settings: where scratch and endpoint are; by default what the environment says.

    Raises:
        UsageError: a scheme that no backend speaks, or a malformed address.
        EnvironmentFault: an s3 store without credentials.
    """
    parts = urlsplit(uri)
    if parts.scheme in ("s3", "minio"):
        # Imported late: a store on local disk needs no S3 client (60 ms).
        from yanmo.store.s3.store import S3Store

        return S3Store(uri, settings or StoreSettings())
    if parts.scheme in ("", "file"):
        from yanmo.store.file_store import FileStore

        if parts.scheme == "file" and parts.netloc not in ("", "localhost"):
            raise UsageError(f"--store {uri}: expected file:///absolute/path")
        path = unquote(parts.path) if parts.scheme else uri
        if not path:
            raise UsageError("--store is empty: expected a folder, file:///path or s3://bucket/prefix")
        store = FileStore(Path(path))
        if store.root.exists() and not store.root.is_dir():
            raise UsageError(f"--store {uri}: expected a folder, found a file")
        return store
    raise UsageError(
        f"--store {uri}: no backend for {parts.scheme}://; expected file:///path or s3://bucket/prefix"
    )
