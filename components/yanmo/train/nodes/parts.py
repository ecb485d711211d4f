"""Parts of checkpoints that ranks of other nodes have put into a store, and that nobody fetches any more."""

from __future__ import annotations

from yanmo.store.file_store import FileStore
from yanmo.store.objects import ObjectStore

PARTS = "parts"


def forget_parts(store: ObjectStore, work_name: str) -> None:
    """Delete those of earlier starts of a training, or of all once it is committed.

    Args:
        work_name: where the work lies in the store.
    """
    if isinstance(store, FileStore):
        return  # ranks write into the folder of the checkpoint itself
    for found in list(store.list(f"{work_name}/{PARTS}")):
        store.delete(found.name)
