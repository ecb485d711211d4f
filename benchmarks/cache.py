"""Reading token rows, packing documents, and how long a training step waits for its data.

    python benchmarks/cache.py [--rows 50000] [--reads 5000] [--repeats 7]
    python benchmarks/cache.py --store runs/demo --cache demo/tokenize        packing and waiting too

Rows of 1,024 ids, each read as int64, in order and at random, every store in one process, interleaved, after
one round to warm up: median of the repeats, and of each repeat's ratio to numpy's memmap. CPU seconds and not
wall time. Peers that are not installed are left out: run it with the Python of an environment that has
mosaicml-streaming, litdata and datasets beside Yanmo. Megatron's format is written and read as
megatron/core/datasets/indexed_dataset.py does (one header, one memmap, frombuffer per row).
"""

from __future__ import annotations

import argparse
import os
import statistics
import struct
import tempfile
import time
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from yanmo.common.aligned_table import text_table
from yanmo.formats.token_file import open_tokens, write_tokens

T = 1024
Read = Callable[[int], Any]
"""Row number -> its ids as int64."""


def memmap(folder: Path, rows: np.ndarray) -> Read:
    rows.tofile(folder / "tokens.bin")
    opened = np.memmap(folder / "tokens.bin", np.uint16, "r").reshape(-1, T)
    return lambda i: opened[i].astype(np.int64)


def ours(folder: Path, rows: np.ndarray) -> Read:
    write_tokens(folder / "t.parquet", rows.reshape(-1), vocab_size=1 << 16, tokenizer="", split="train")
    ids = open_tokens(folder / "t.parquet").ids
    return lambda i: ids[i * T : (i + 1) * T].astype(np.int64)


def megatron(folder: Path, rows: np.ndarray) -> Read:
    rows.tofile(folder / "m.bin")
    head = b"MMIDIDX\x00\x00" + struct.pack("<QBQQ", 1, 8, len(rows), len(rows) + 1)
    lengths, pointers = np.full(len(rows), T, np.int32), np.arange(len(rows), dtype=np.int64) * 2 * T
    documents = np.arange(len(rows) + 1, dtype=np.int64)
    (folder / "m.idx").write_bytes(head + lengths.tobytes() + pointers.tobytes() + documents.tobytes())
    index = memoryview(np.memmap(folder / "m.idx", mode="r", order="C"))
    at = len(head)
    size = np.frombuffer(index, np.int32, len(rows), at)
    pointer = np.frombuffer(index, np.int64, len(rows), at + size.nbytes)
    data = memoryview(np.memmap(folder / "m.bin", mode="r", order="C"))
    return lambda i: np.frombuffer(data, np.uint16, size[i], pointer[i]).astype(np.int64)


def hf_datasets(folder: Path, rows: np.ndarray) -> Read:
    import pyarrow as pa
    from datasets import Dataset, load_from_disk

    column = pa.FixedSizeListArray.from_arrays(pa.array(rows.reshape(-1)), T)
    made = Dataset(pa.table({"tokens": column}))
    made.save_to_disk(str(folder / "hf"))
    opened = load_from_disk(str(folder / "hf")).with_format("numpy")
    return lambda i: opened[int(i)]["tokens"].astype(np.int64)


def mds(folder: Path, rows: np.ndarray) -> Read:
    from streaming import MDSWriter, StreamingDataset

    with MDSWriter(out=str(folder / "mds"), columns={"tokens": "bytes"}) as out:
        for row in rows:
            out.write({"tokens": row.tobytes()})
    opened = StreamingDataset(local=str(folder / "mds"), shuffle=False, batch_size=1)
    return lambda i: np.frombuffer(opened[int(i)]["tokens"], np.uint16).astype(np.int64)


def litdata_rows(folder: Path, rows: np.ndarray) -> Read:
    import torch
    from litdata import StreamingDataset, TokensLoader
    from litdata.streaming.cache import Cache

    where = str(folder / "litdata")
    cache = Cache(input_dir=where, chunk_bytes="64MB", item_loader=TokensLoader(T))
    for i, row in enumerate(rows):
        cache[i] = torch.from_numpy(row.astype(np.int32))
    cache.done()
    cache.merge(1)
    opened = StreamingDataset(where, item_loader=TokensLoader(T), shuffle=False)
    return lambda i: opened[int(i)].numpy().astype(np.int64)


STORES: dict[str, tuple[str, Callable[[Path, np.ndarray], Read]]] = {
    "numpy memmap": ("numpy", memmap),
    "ours (Parquet)": ("", ours),
    "Megatron .bin/.idx": ("", megatron),
    "HF datasets": ("datasets", hf_datasets),
    "MDS": ("mosaicml-streaming", mds),
    "litdata": ("litdata", litdata_rows),
}


def opened_stores(folder: Path, rows: np.ndarray) -> dict[str, Read]:
    """Every store that can be had here, checked on a few rows."""
    found = {}
    for name, (package, make) in STORES.items():
        try:
            version = f" {metadata.version(package)}" if package else ""
            read = make(folder, rows)
        except ImportError as error:
            print(f"{name}: left out ({error})")
            continue
        assert all((read(i) == rows[i]).all() for i in (0, 7, len(rows) - 1)), name
        found[name + version] = read
    return found


def reads(stores: dict[str, Read], order: np.ndarray, repeats: int) -> dict[str, list[float]]:
    """Millions of ids per CPU-second, per store and repeat."""
    speeds: dict[str, list[float]] = {name: [] for name in stores}
    for repeat in range(repeats + 1):
        for name, read in stores.items():
            began = time.process_time()
            for i in order:
                read(i)
            if repeat:
                speeds[name].append(len(order) * T / (time.process_time() - began) / 1e6)
    return speeds


def show_reads(num_rows: int, num_reads: int, repeats: int) -> None:
    rng = np.random.default_rng(0)
    rows = rng.integers(0, 32_000, (num_rows, T)).astype(np.uint16)
    with tempfile.TemporaryDirectory() as name:
        stores = opened_stores(Path(name), rows)
        orders = {"in order": np.arange(num_reads), "at random": rng.permutation(num_rows)[:num_reads]}
        found = {way: reads(stores, order.tolist(), repeats) for way, order in orders.items()}
    table = [["store", *(f"{w}: M ids/CPU-s" for w in orders), *(f"{w}: of memmap" for w in orders)]]
    for store in stores:
        speeds = [statistics.median(found[way][store]) for way in orders]
        first = next(iter(stores))
        shares = [
            statistics.median(a / b for a, b in zip(found[way][store], found[way][first], strict=True))
            for way in orders
        ]
        table.append([store, *(f"{s:.0f}" for s in speeds), *(f"{s:.2f}" for s in shares)])
    print(f"\n{num_rows} rows of {T} ids, {num_reads} read, {repeats} repeats")
    print(*text_table(table), sep="\n")


def show_packing(cache: Any) -> None:
    from yanmo.formats.packing_settings import Packing
    from yanmo.tools.cache.plan import figures_of

    index = cache.split("train")
    none = np.zeros(len(index), bool)
    names = {
        "one document a row, padded": {"mode": "one"},
        "concat and cut": {"mode": "concat"},
        "best fit": {},
        "best fit, cut above half a row": {"split_longer_than": -2, "min_piece": 32},
    }
    figures_of(index, none, Packing(context=64), 0)  # loads numba
    table = [["packing", "context", "padding", "documents cut", "of them fit a row", "ms per 1 M documents"]]
    for context in (512, 1024, 2048):
        for name, how in names.items():
            more = {k: context // -v if v == -2 else v for k, v in how.items()}
            one = figures_of(index, none, Packing(context=context, **more), 0)
            table.append(
                [
                    name,
                    str(context),
                    f"{100 * one['padding_share']:.3f} %",
                    f"{100 * one['documents_cut'] / len(index):.2f} %",
                    f"{one['short_documents_cut']}",
                    f"{1e9 * one['cpu_seconds'] / len(index):.0f}",
                ]
            )
    print(f"\n{len(index)} documents, {int(index.length.sum(dtype=np.int64))} tokens")
    print(*text_table(table), sep="\n")


def show_waiting(cache: Any, steps: int) -> None:
    """Wall seconds in `Samples.batch` by those of the whole step, in this process."""
    import torch

    from yanmo.formats.packing_settings import Packing
    from yanmo.model.decoder import Decoder, DecoderConfig
    from yanmo.train.backends.open_engine import open_engine
    from yanmo.train.config import TrainConfig
    from yanmo.train.data import Samples

    os.environ.update({"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1"})
    os.environ.setdefault("MASTER_PORT", "29517")
    torch.set_num_threads(1)
    table = [["batch", "model", "thread", "ms per step", "ms waiting", "share"]]
    for context, rows in ((64, 32), (1024, 4)):
        options = TrainConfig(context=context, batch_rows=rows, ranks=1, backend="torch", device="cpu")
        shape = DecoderConfig(
            vocab_size=cache.vocab_size,
            hidden_size=192,
            num_hidden_layers=3,
            num_attention_heads=3,
            num_key_value_heads=1,
            head_dim=64,
            intermediate_size=512,
            max_position_embeddings=context,
        )
        engine = open_engine(Decoder(shape), options, "cpu")
        for prefetch in (0, 1, 4):
            samples = Samples(
                cache,
                packing=Packing(context=context),
                seed=0,
                tag_share=0.5,
                pad=cache.special.pad,
                prefetch=prefetch,
            )
            samples.plan(0)
            whole, waited = _steps(samples, engine, rows, steps)
            table.append(
                [
                    f"{rows} x {context}",
                    f"{sum(p.numel() for p in engine.decoder.parameters()) / 1e6:.0f} M",
                    str(prefetch),
                    f"{1e3 * whole:.0f}",
                    f"{1e3 * waited:.3f}",
                    f"{100 * waited / whole:.3f} %",
                ]
            )
    print(f"\nwaiting for data, {steps} steps each, one CPU")
    print(*text_table(table), sep="\n")
    samples = Samples(cache, packing=Packing(context=T), seed=0, tag_share=0.5, pad=0)
    samples.batch(0, 64)
    began = time.process_time()
    for i in range(10):
        samples.batch(64 * i, 64)
    speed = 640 * T / (time.process_time() - began) / 1e6
    print(f"\npacked training rows (ids, targets, segments): {speed:.1f} M ids per CPU-second")


def _steps(samples: Any, engine: Any, rows: int, steps: int) -> tuple[float, float]:
    """Median wall seconds of a step, and of it in `batch`; the first two steps are left out."""
    wholes, waits = [], []
    for step in range(steps + 2):
        began = time.perf_counter()
        batch = samples.batch(step * rows, rows)
        waited = time.perf_counter() - began
        engine.accumulate(batch, batch.num_targets)
        engine.step()
        wholes.append(time.perf_counter() - began)
        waits.append(waited)
    return statistics.median(wholes[2:]), statistics.median(waits[2:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=50_000, help="rows of the stores; 0 leaves reading out")
    parser.add_argument("--reads", type=int, default=5_000, help="rows read in a round")
    parser.add_argument("--repeats", type=int, default=7, help="rounds")
    parser.add_argument("--steps", type=int, default=20, help="training steps for the waiting")
    parser.add_argument("--store", default="", help="store with a token cache")
    parser.add_argument("--cache", default="demo/tokenize", help="the cache in it")
    args = parser.parse_args()
    if args.rows:
        show_reads(args.rows, args.reads, args.repeats)
    if args.store:
        from yanmo.formats.token_cache import TokenCache
        from yanmo.store.opening import open_store
        from yanmo.tools.cache.open_cache import find_cache

        cache = TokenCache.open(find_cache(open_store(args.store), args.cache))
        show_packing(cache)
        show_waiting(cache, args.steps)


if __name__ == "__main__":
    main()
