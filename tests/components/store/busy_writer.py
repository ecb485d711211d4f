"""A process that takes up old outputs and makes new ones: busy_writer.py STORE SECONDS NUMBER.

Each round makes (or adopts) a chain of two and moves a pointer to it, as a stage does; a round that gc
disturbed ends with StorageError and is done again. Two writers move the same pointers to and fro.
"""

from __future__ import annotations

import sys
import time

from ground import Ground

from yanmo.common.errors import DataError, StorageError
from yanmo.common.store.commit import check_present
from yanmo.common.store.pointers import move_pointer

URI, SECONDS, NUMBER = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])


def round_of(ground: Ground, number: int) -> None:
    raw = {"content_digest": f"{number % 3}" * 64, "uri": "file:///raw"}
    first = ground.commit("first", inputs={"sources": raw}, text=str(number % 3))
    second = ground.commit("second", inputs={"documents": first}, text=str(number % 3))
    move_pointer(ground.store, "busy", "second", second.reference)
    check_present(ground.store, [second])


if __name__ == "__main__":
    ground, number, again = Ground(URI), NUMBER, 0
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        try:
            round_of(ground, number)
        except (StorageError, DataError):  # what it had opened was removed: an orderly end, and a retry
            again += 1
            continue
        number += 1
    while True:  # the last round must come to its end
        try:
            round_of(ground, number)
            break
        except (StorageError, DataError):
            again += 1
    print(f"{number} rounds, {again} again")
