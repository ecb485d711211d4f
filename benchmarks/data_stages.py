"""Memory of every process of `curate`, `balance` and `tokenize`, and their time, by the size of the text.

    python benchmarks/data_stages.py [--times 1,5,10] [--workers 1,2]
    python benchmarks/data_stages.py --documents 1000000,4000000

The first makes the bundled corpus so many times over, each time with its characters exchanged one for one (as
benchmarks/curate.py does), and runs the three stages in a store of its own. A peak is the system's own figure
(VmHWM), libraries and mapped files included; it is asked for every 20 ms, of the main process and of the
largest worker. `own` is what of the main process's memory is in no file (RssAnon), at most at these moments.

The second leaves the text out: tables of so many documents with random digests, of which a tenth are copies,
go through the steps that hold something of each. For each step: seconds, the peak of memory in it, that of
what is in no file, and by how much that grows at its peak and after it, in bytes per document.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import curate
import numpy as np
import pyarrow as pa
import zstandard

from yanmo.common.disk_arrays import new_array, release_pages, slices, taken

STAGES = ("curate", "balance", "tokenize")
_EVERY_SECONDS = 0.02
_ROWS = 10_000
"""Documents of a mapped file: what the bundled corpus has in 4 MiB."""


class Watch(threading.Thread):
    """Calls a function every 20 ms until it is stopped, and then once more."""

    def __init__(self, look: Callable[[], None]) -> None:
        super().__init__(daemon=True)
        self._look, self._done = look, threading.Event()

    def run(self) -> None:
        while not self._done.wait(_EVERY_SECONDS):
            self._look()

    def stop(self) -> None:
        self._done.set()
        self.join()
        self._look()


class Peaks:
    """The largest memory of all processes below this one."""

    def __init__(self) -> None:
        self.main = self.worker = self.own = 0

    def look(self) -> None:
        for pid in _below(os.getpid()):
            peak, own, is_worker = _peak(pid)
            if is_worker:
                self.worker = max(self.worker, peak)
            else:
                self.main, self.own = max(self.main, peak), max(self.own, own)


class OwnPeak:
    """The most memory of this process that is in no file."""

    most = 0

    def look(self) -> None:
        self.most = max(self.most, _peak(os.getpid())[1])


def _below(parent: int) -> Iterator[int]:
    found: list[str] = []
    for children in Path(f"/proc/{parent}/task").glob("*/children"):  # a thread may have started them
        with contextlib.suppress(OSError):
            found += children.read_text().split()
    for pid in map(int, found):
        yield pid
        yield from _below(pid)


def _peak(pid: int) -> tuple[int, int, bool]:
    """Bytes of the peak of a process and those in no file; whether it is a worker, or the workers' server."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        is_worker = b"forkserver" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return 0, 0, False
    found = {name: value for name, _, value in (line.partition(":") for line in lines)}
    peak, own = (1024 * int(found.get(name, "0 kB").split()[0]) for name in ("VmHWM", "RssAnon"))
    return peak, own, is_worker


def of_stages(folder: Path, times: int, workers: int) -> None:
    """Run the stages on the corpus `times` over and print a row for each."""
    source, store = folder / f"{times}.jsonl", folder / f"store-{times}-{workers}"
    size = source.stat().st_size / 1e6
    for stage in STAGES:
        command = [sys.executable, "-m", f"yanmo.{stage}", "--store", str(store), "--metrics-port", "-1"]
        command += ["--sources", str(source)] if stage == "curate" else []
        command += [] if stage == "balance" else ["--workers", str(workers)]
        peaks = Peaks()
        watch = Watch(peaks.look)
        watch.start()
        cost = curate.measure(command, folder / "log")
        watch.stop()
        row = f"{stage:10}{size:8.0f}{workers:9}{cost.wall:9.1f}{cost.cpu:9.1f}{size / cost.cpu:10.2f}"
        print(f"{row}{peaks.main / 1e6:9.0f}{peaks.own / 1e6:7.0f}{peaks.worker / 1e6:10.0f}", flush=True)


def sizes(options: argparse.Namespace) -> None:
    """Print a table of stages by size of the text and number of workers."""
    ctypes.CDLL(None).prctl(curate._SUBREAPER, 1, 0, 0, 0)
    with tempfile.TemporaryDirectory(prefix="yanmo-data-stages-", dir=options.folder or None) as name:
        folder = Path(name)
        with zstandard.open(curate.CORPUS, "rb") as packed:
            (folder / "corpus.jsonl").write_bytes(packed.read())
        heading = f"{'':10}{'MB':>8}{'workers':>9}{'wall s':>9}{'CPU s':>9}{'MB/CPU-s':>10}"
        print(f"{heading}{'main MB':>9}{'own':>7}{'worker MB':>10}")
        for times in map(int, options.times.split(",")):
            curate.write_times(folder / "corpus.jsonl", folder / f"{times}.jsonl", times)
            for workers in map(int, options.workers.split(",")):
                of_stages(folder, times, workers)
                subprocess.run(["rm", "-rf", str(folder / f"store-{times}-{workers}")], check=True)
            (folder / f"{times}.jsonl").unlink()
        print(f"load of the machine at the end: {os.getloadavg()[0]:.1f}")


@contextmanager
def step(name: str, documents: int) -> Iterator[None]:
    """Print what the work inside takes."""
    release_pages()
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts again from here: proc_pid_clear_refs(5)
    pa.default_memory_pool().release_unused()
    before, own, start = _peak(os.getpid())[1], OwnPeak(), time.monotonic()
    watch = Watch(own.look)
    watch.start()
    yield
    seconds = time.monotonic() - start
    watch.stop()
    release_pages()
    pa.default_memory_pool().release_unused()
    peak, now, _ = _peak(os.getpid())
    kept, most = (now - before) / documents, (own.most - before) / documents
    print(f"{name:44}{seconds:9.1f}{peak / 1e6:9.0f}{own.most / 1e6:7.0f}{most:12.1f}{kept:8.1f}", flush=True)


def write_tables(folder: Path, documents: int) -> tuple[list[Path], list[Path]]:
    """Files as `map` and `sign` write them, with almost no text."""
    import pyarrow.parquet as pq

    from yanmo.curate.duplicates.signing import BAND_COLUMNS, SIGNED
    from yanmo.curate.mapping import MAPPED
    from yanmo.formats.records import write_parquet

    generator, mapped, signed = np.random.default_rng(0), [], []
    same = {"text": "天地玄黄", "labels": [], **dict.fromkeys(("title", "author", "source", "license"), "a")}
    constant = {name: pa.array([value] * _ROWS, MAPPED.field(name).type) for name, value in same.items()}
    for number, start in enumerate(range(0, documents, _ROWS)):
        rows = min(_ROWS, documents - start)
        of_copies = generator.integers(0, 2**63, (documents // 10 // (documents // _ROWS + 1) + 1, 2))
        cluster = generator.integers(0, 2**63, (rows, 2))
        cluster[: len(of_copies)] = np.random.default_rng(number // 2).integers(0, 2**63, of_copies.shape)
        digits, whole = generator.bytes(32 * rows).hex(), generator.bytes(16 * rows)
        columns: dict[str, Any] = {
            "id": [digits[i : i + 64] for i in range(0, len(digits), 64)],
            "genre": np.array(["诗", "词", "文"], object)[generator.integers(0, 3, rows)],
            "cluster": [one.tobytes() for one in cluster],
            "whole": [whole[i : i + 16] for i in range(0, len(whole), 16)],
            "characters": generator.integers(20, 500, rows),
            "marks": generator.integers(0, 50, rows),
        }
        arrays = [
            constant[field.name][:rows]
            if field.name in constant
            else pa.array(columns[field.name], field.type)
            for field in MAPPED
        ]
        mapped.append(folder / f"mapped-{number:06d}.parquet")
        write_parquet(pa.table(arrays, schema=MAPPED), mapped[-1])
        keys = generator.integers(0, 2**32, (len(BAND_COLUMNS), rows), dtype=np.uint32)
        numbers = [np.full(rows, 200, np.int32), np.zeros(rows, np.int32)]
        signed.append(folder / f"signed-{number:06d}.parquet")
        pq.write_table(pa.table([*numbers, *keys], schema=SIGNED), signed[-1], compression="none")
    return mapped, signed


def plan(folder: Path, documents: int) -> None:
    """The steps of `curate` that hold a table of all documents."""
    from yanmo.curate.corpus import Corpus
    from yanmo.curate.document_files import files_of, layout_of
    from yanmo.curate.duplicates.near_duplicates import Edges
    from yanmo.curate.duplicates.proposals import propose
    from yanmo.curate.duplicates.shingle_sets import take_apart
    from yanmo.curate.duplicates.sorted_runs import merged
    from yanmo.curate.mapping import MapReport
    from yanmo.curate.plan import find_exact_copies, read_candidates, read_clusters
    from yanmo.curate.split.hold_out import SplitSize, hold_out

    paths, signed = write_tables(folder, documents)
    (folder / "scratch").mkdir()
    with step("curate: the table of all documents", documents):
        candidates = read_candidates(paths, signed)
    with step("curate: exact copies", documents):
        copies = find_exact_copies(read_clusters(paths, len(candidates)), candidates.ranks)
    with step("curate: pairs that share a band (one worker)", documents):
        runs = propose(folder / "scratch", signed, candidates, copies.unique, 1)
    with step("curate: clusters, the best of each", documents):
        whole = np.arange(len(copies.unique), dtype=np.int32)
        rest: dict[str, Any] = {"cluster": whole, "kept_for": whole, "kept": whole}
        corpus = Corpus(
            paths=paths, signed=signed, form="classical-1", candidates=candidates, copies=copies,
            report=MapReport(), **rest,
        )  # fmt: skip
        first, second = take_apart(next(merged(runs, documents // 4), np.zeros(0, np.uint64)))
        corpus.drop_near_duplicates(Edges(first=first.astype(np.int32), second=second.astype(np.int32)))
    with step("curate: held-out splits", documents):
        size = SplitSize(characters=10**6, share=0.1, min_documents=20)
        chosen = corpus.chosen
        genre, characters = taken(candidates.genre, chosen), taken(candidates.characters, chosen)
        hold_out(genre, characters, corpus.groups(), [size, size])
        del chosen, genre, characters
    with step("curate: which document goes into which file", documents):
        files = files_of(corpus, "train", corpus.kept, 20_000_000, "")
        cuts = sum(len(cut.rows) for cut in layout_of(corpus, files, folder).cuts())
        assert cuts == len(corpus.kept)


def quotas(folder: Path, documents: int) -> None:
    """The steps of `balance` that hold a table of all documents."""
    from yanmo.balance.document_table import ID_BYTES, Rows, TrainFiles
    from yanmo.balance.quotas.choice import Picker
    from yanmo.balance.quotas.drawn_order import order_of
    from yanmo.balance.quotas.targets import Target
    from yanmo.balance.token_count import TokenCount
    from yanmo.formats.row_pieces import Layout

    generator = np.random.default_rng(0)
    with step("balance: the table of all documents", documents):
        ids = new_array(documents * ID_BYTES, np.uint8).reshape(-1, ID_BYTES)
        for some in slices(documents):
            ids[some] = generator.integers(0, 256, ids[some].shape, np.uint8)
        paths = [folder / f"{number}" for number in range(documents // 130_000 + 1)]
        codes, characters, tokens = (new_array(documents, kind) for kind in (np.uint8, np.int32, np.int32))
        for some in slices(documents):
            codes[some] = tokens[some] = np.arange(some.start, some.stop) % 3
            characters[some] = generator.integers(20, 500, some.stop - some.start)
        rows = Rows(
            starts=np.append(np.arange(len(paths)) * 130_000, documents), id=ids,
            genre=codes, group=codes, genres=["a", "b", "c"], groups=["a", "b", "c"],
            characters=characters, tokens=tokens,
        )  # fmt: skip
    with step("balance: the choice by quotas (100, 60, 200 %)", documents):
        picker = Picker(TrainFiles(paths), rows, "characters", 0, 2, TokenCount())
        have = {name: int(picker.units(rows.of_group(name)).sum()) for name in rows.groups}
        asked = {"a": have["a"], "b": have["b"] * 3 // 5, "c": have["c"] * 2}
        picked, _ = picker.pick({name: Target("", units, units) for name, units in asked.items()})
    with step("balance: which document goes into which file", documents):
        order = order_of(picked.first, lambda places: rows.id[picked.position[places]])
        position = picked.position[order]
        bounds = [(at, min(at + 130_000, len(order))) for at in range(0, len(order), 130_000)]
        layout = Layout(paths=paths, starts=rows.starts, index=position, bounds=bounds, scratch=folder)
        assert sum(len(cut.rows) for cut in layout.cuts()) == len(order)


def structures(options: argparse.Namespace) -> None:
    """Print a table of the steps whose memory grows with the number of documents."""
    print(f"{'':44}{'s':>9}{'peak MB':>9}{'own':>7}{'B/document':>12}{'kept':>8}")
    for documents in map(int, options.documents.split(",")):
        works: list[Callable[[Path, int], None]] = [plan, quotas]
        for work in works:
            with tempfile.TemporaryDirectory(prefix="yanmo-data-stages-", dir=options.folder or None) as name:
                child = os.fork()
                if not child:
                    print(f"{work.__name__} of {documents:,} documents")
                    work(Path(name), documents)
                    sys.stdout.flush()
                    os._exit(0)
                if os.waitpid(child, 0)[1]:
                    sys.exit("a step failed")


def main() -> None:
    command = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    command.add_argument("--times", default="1,5,10", help="how many times the bundled corpus each input is")
    command.add_argument("--workers", default="1,2", help="processes of curate and tokenize, for each input")
    command.add_argument("--documents", default="", help="measure the tables of so many documents instead")
    command.add_argument("--folder", default="", help="where to write; the system's temporary folder")
    options = command.parse_args()
    (structures if options.documents else sizes)(options)


if __name__ == "__main__":
    main()
