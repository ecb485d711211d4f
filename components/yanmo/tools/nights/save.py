"""`yanmo nights save`: the pages of nights as a folder on this disk, which a browser opens."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path

from yanmo.common.errors import DataError, ExitCode
from yanmo.common.whole_file import write_whole
from yanmo.nights.places import is_of_nights
from yanmo.options.fields import REQUIRED, opt
from yanmo.options.shared import ToolOptions
from yanmo.store.objects import ObjectInfo, ObjectStore


@dataclass(frozen=True, kw_only=True)
class SaveOptions(ToolOptions, group="save"):
    """Save the pages and feeds of all channels' nights in a folder; its index.html leads to all of them.

    For a bucket that no browser may open. Pages that are there already, of the same size and time,
    are left; lists and feeds are always fetched.
    """

    to: str = opt(REQUIRED, "the folder; made where there is none", metavar="FOLDER")


def run(store: ObjectStore, options: SaveOptions) -> int:
    folder = Path(options.to)
    saved = 0
    for info in store.list("nights"):
        path = folder / info.name.removeprefix("nights/")
        if not is_of_nights(info.name) or path.suffix not in (".html", ".xml"):
            continue
        if path.name.count("-") > 2 and _is_same(path, info):
            continue
        with contextlib.suppress(FileNotFoundError):  # removed since it was listed
            text = store.read(info.name)[0].decode("utf-8", "replace")
            path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(path, text)
            os.utime(path, (info.modified, info.modified))
            saved += 1
    if not (folder / "index.html").is_file():
        raise DataError(f"{store.uri} has no nights yet: a run of a pipeline makes the first page")
    print(f"saved {saved} pages: {os.path.relpath(folder / 'index.html')}")
    return ExitCode.DONE


def _is_same(path: Path, info: ObjectInfo) -> bool:
    """Whether a page was saved since it was last written: it has the store's time since then."""
    if not path.is_file():
        return False
    here = path.stat()
    return here.st_size == info.bytes and abs(here.st_mtime - info.modified) < 1e-3
