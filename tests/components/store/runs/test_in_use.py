"""What a run rests on is written where gc looks, also where two processes write it at once."""

from __future__ import annotations

import json
import threading

from yanmo.store.file_store import FileStore
from yanmo.store.output import Output
from yanmo.store.runs.in_use import INPUTS, announce, work_name

KEY = "ab" * 32
ROUNDS = 100


def test_two_processes_that_use_one_committed_output_both_go_on(store: FileStore, output: Output) -> None:
    """A pipeline evaluates challenger and champion side by side, and they may be one model: one of the two
    ended with 75 (seen on a real KFP, which does not try again)."""
    together, failed = threading.Barrier(2), list[BaseException]()

    def use(who: str) -> None:
        try:
            for number in range(ROUNDS):
                together.wait()
                announce(store, "evaluate", KEY, {f"{who} {number}": output})
        except BaseException as error:
            failed.append(error)
            together.abort()

    threads = [threading.Thread(target=use, args=(who,)) for who in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    kept = json.loads(store.read(f"{work_name('evaluate', KEY)}/{INPUTS}")[0])["inputs"]
    assert list(kept) in ([f"a {ROUNDS - 1}"], [f"b {ROUNDS - 1}"]), "the last one's list stays whole"
