"""Where a store's server and this machine's scratch folder are: never part of a key or a manifest."""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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
