"""Opens the store at an address, by its scheme.

Where its server and this machine's scratch folder are is never part of a key or a manifest.
"""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from yanmo.common.errors import StoreUnusable, UsageError
from yanmo.store.objects import ObjectStore

GIB = 1 << 30


@dataclass(frozen=True, kw_only=True)
class StoreSettings:
    """What an s3 store needs in addition to its address. Credentials are not here (s3/credentials.py)."""

    endpoint: str = ""
    """http(s)://host[:port]; "" means what the environment or the mounted secret says, else AWS."""
    scratch: str = ""
    """Folder on a local disk; "" means $YANMO_SCRATCH, else yanmo/ in the user's cache folder."""
    scratch_gib: float = 200.0
    """Cap of the read-through cache, GiB."""

    @classmethod
    def of(cls, options: Any) -> StoreSettings:
        """Return the settings in a stage's options."""
        return cls(
            endpoint=options.endpoint,
            scratch=options.scratch,
            scratch_gib=options.scratch_gib,
        )

    @property
    def scratch_folder(self) -> Path:
        """Return the folder of scratch on this machine."""
        given = self.scratch or os.environ.get("YANMO_SCRATCH", "")
        if given:
            return Path(given).absolute()
        cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
        # A container may run as a user without a home ("~" stays, or is /): then the temporary folder.
        usable = os.path.isabs(cache) and os.access(os.path.dirname(cache.rstrip("/")), os.W_OK)
        return Path(cache if usable else tempfile.gettempdir()) / "yanmo"


def open_store(uri: str, settings: StoreSettings | None = None) -> ObjectStore:
    """Return the store at a folder, `file:///path`, `s3://bucket/prefix` or `minio://bucket/prefix`.

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
        from yanmo.store.scratch import Scratch

        settings = settings or StoreSettings()
        scratch = Scratch(settings.scratch_folder, int(settings.scratch_gib * GIB))
        return S3Store(uri, settings.endpoint, scratch)
    if parts.scheme in ("", "file"):
        from yanmo.store.file_store import FileStore

        if parts.scheme == "file" and parts.netloc not in ("", "localhost"):
            raise UsageError(f"--store {uri}: expected file:///absolute/path")
        path = local_folder(uri)
        if path is None or not (parts.path if parts.scheme else uri):
            raise UsageError("--store is empty: expected a folder, file:///path or s3://bucket/prefix")
        try:
            path = path.absolute()
        except FileNotFoundError:
            raise StoreUnusable(
                f"--store {uri}: the folder that this shell is in has been deleted; change to one that exists"
                ", or give the store's whole path"
            ) from None
        if path.is_file():
            raise UsageError(f"--store {uri}: expected a folder, found a file")
        return FileStore(path)
    raise UsageError(
        f"--store {uri}: no backend for {parts.scheme}://; expected file:///path or s3://bucket/prefix"
    )


def local_folder(uri: str) -> Path | None:
    """Return the folder of the store at `uri`; None where it is on a server."""
    parts = urlsplit(uri)
    if parts.scheme not in ("", "file"):
        return None
    return Path(unquote(parts.path) if parts.scheme else uri)


def store_of(options: Any, uri: str | None = None) -> ObjectStore:
    """Return the store that a stage's or tool's options name, or the one at `uri`; as `open_store`."""
    return open_store(options.store if uri is None else uri, StoreSettings.of(options))


def default_store(kfp_bucket: str = "") -> str:
    """Return the URI of a pod's store that no command names: its mounted Secret's, else KFP's bucket.

    Args:
        kfp_bucket: `minio://mlpipeline`; empty outside of KFP.

    Raises:
        UsageError: neither is there.
    """
    from yanmo.store.mounted import mounted

    uri = mounted("store") or os.environ.get("YANMO_STORE", "") or (kfp_bucket and f"{kfp_bucket}/yanmo")
    if not uri:
        raise UsageError("--store is empty: expected a folder, file:///path or s3://bucket/prefix")
    return uri
