"""What the baselines and the measures of writing cost: CPU and wall seconds on a store's documents.

    python benchmarks/baselines.py --store runs/demo --channel demo

Prints one line per part: 5-gram training and scoring, the 5-grams of the mixture, PPMd, xz with one run for
all genres (as evaluate does it) and, with --naive, xz with one run per genre; then what the rules of verse
and the judge of genres learn, and the look for copies of the test split.
"""

from __future__ import annotations

import argparse
import lzma
import resource
import time
from collections.abc import Callable
from typing import Any

from yanmo.common.errors import DataError
from yanmo.evaluate.baselines.baselines import ppmd_bits, xz_results
from yanmo.evaluate.baselines.mixture import mixture_bits
from yanmo.evaluate.baselines.ngram import NgramModel
from yanmo.evaluate.documents.reading import Document, by_genre, read_split, training_texts
from yanmo.evaluate.verse.verse_table import learn
from yanmo.evaluate.writing.copies import find_copies
from yanmo.evaluate.writing.degeneration import GenreJudge
from yanmo.store.objects import ObjectStore
from yanmo.store.opening import open_store
from yanmo.store.output import Output, open_reference
from yanmo.store.pointers import read_pointer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--store", default="runs/demo")
    parser.add_argument("--channel", default="demo")
    parser.add_argument("--naive", action="store_true", help="also run xz once per genre")
    options = parser.parse_args()
    store = open_store(options.store)
    sources = training_texts(_latest(store, options.channel, "curate"), 10**9)
    texts = [source.text for source in sources]
    scored = read_split(_latest(store, options.channel, "evaluation_set"), "test")
    print(
        f"{sum(map(len, texts)):,} characters of training text, {sum(d.characters for d in scored):,} scored"
    )
    model = _timed("5-gram, train", lambda: NgramModel.train(texts))
    _timed("5-gram, score", lambda: model.document_bits([d.text for d in scored]))
    print(f"{'peak memory':<24}{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6:8.2f} GB")
    valid = read_split(_latest(store, options.channel, "evaluation_set"), "valid")
    _timed("5-grams of the mixture", lambda: mixture_bits(by_genre(sources), valid, scored))
    _timed("PPMd", lambda: ppmd_bits(texts, scored))
    _timed("xz, all genres", lambda: xz_results(texts, scored))
    if options.naive:
        _timed("xz, a run per genre", lambda: _naive_xz(texts, scored))
    _timed("verse, learn", lambda: learn((s.genre, s.title, s.text) for s in sources))
    _timed("genre judge, learn", lambda: GenreJudge(by_genre(sources)))
    _timed("copies, 8-grams", lambda: find_copies([d.text for d in scored], [sources], 8))


def _latest(store: ObjectStore, channel: str, name: str) -> Output:
    reference = read_pointer(store, channel, name)
    if reference is None:
        raise DataError(f"channel {channel!r} of {store.uri} has no {name}; run `make demo` first")
    return open_reference(store, reference)


def _timed(what: str, work: Callable[[], Any]) -> Any:
    wall, cpu = time.perf_counter(), _cpu_seconds()
    result = work()
    print(f"{what:<24}{_cpu_seconds() - cpu:8.1f} CPU s{time.perf_counter() - wall:8.1f} s")
    return result


def _cpu_seconds() -> float:
    """Of this process and of its children that ended."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def _naive_xz(texts: list[str], scored: list[Document]) -> list[int]:
    prefix = ("\n".join(texts) + "\n").encode()
    joined = [
        "\n".join(d.text for d in scored if d.genre == g) for g in dict.fromkeys(d.genre for d in scored)
    ]
    preset = 9 | lzma.PRESET_EXTREME
    alone = len(lzma.compress(prefix, preset=preset))
    return [len(lzma.compress(prefix + text.encode(), preset=preset)) - alone for text in joined]


if __name__ == "__main__":
    main()
