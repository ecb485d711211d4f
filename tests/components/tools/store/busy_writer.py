"""A process that takes up old outputs and makes new ones: busy_writer.py STORE SECONDS NUMBER.

Each round makes (or adopts) a chain of two and moves a pointer of its own to it, as a stage does; one that
gc disturbed ends with StorageError and is done again. Once its pointer is set and seen, all of it stays:
a file that is gone then is printed as `lost`.
"""

from __future__ import annotations

import sys
import time

from ground import Ground

from yanmo.common.errors import DataError, StorageError
from yanmo.store.output import Output, open_reference
from yanmo.store.pointers import move_pointer
from yanmo.store.runs.in_use import check_present

URI, SECONDS, NUMBER = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])


def round_of(ground: Ground, number: int) -> None:
    raw = {"content_digest": f"{number % 3}" * 64, "uri": "file:///raw"}
    first = ground.commit("first", inputs={"sources": raw}, text=str(number % 3))
    second = ground.commit("second", inputs={"documents": first}, text=str(number % 3))
    move_pointer(ground.store, f"busy{NUMBER}", "second", second.reference)
    check_present(ground.store, [second])
    time.sleep(0.02)
    for output in (second, first):
        fault = open_or_say(ground, output)
        if fault:
            print(f"lost {output}: {fault}", flush=True)


def open_or_say(ground: Ground, output: Output) -> str | None:
    try:
        return open_reference(ground.store, output.reference).missing()
    except DataError as error:
        return str(error)


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
