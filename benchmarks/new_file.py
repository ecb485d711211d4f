"""What one new source file makes new, by stage and by shard, in a run of the whole pipeline.

    python benchmarks/new_file.py --folder /tmp/new-file

--documents of the bundled corpus are cut into --files source files; one more of --new documents is there from
the second run on. A third run has nothing new. Documents and tokens are cut into shards of
--shard-characters, so that there are some; the model is tiny, as what is made does not depend on its size.

Printed are tables in Markdown: of each kind of output how many there are after the second run, how many
of them it made, and their bytes; of the files of documents and tokens how many have other bytes than before.
Then the CPU seconds of each task in the three runs, and what one file of training text costs to tokenize
beside the least that taking its tokens from those of the run before would cost: read and check them, copy
them document by document into another order, write them.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import zstandard
from tokens import file_task

from yanmo.formats.token_file import open_tokens, write_tokens
from yanmo.tokenize.segmenter import Segmenter
from yanmo.tokenize.shards import tokenize_file

ROOT = Path(__file__).parents[1]
CORPUS = ROOT / "corpus/small.jsonl.zst"
CHANNEL = "main"
KINDS = (
    *("curate_map", "curate_sign", "curate_similar", "evaluation_set", "curate", "balance", "tokenizer"),
    *("token_shard", "tokenize", "train", "evaluate", "contamination", "baselines", "writing", "promote"),
)
"""Kinds of outputs, as the stages make them one after another."""
SHARDED = {"curate": ("train", "valid"), "balance": ("train", "valid"), "tokenize": ("tokens",)}
"""Kind -> how its files begin that are cut into shards."""
OPTIONS = (
    "train.layers=1 train.width=64 train.heads=1 train.feed-forward=64 train.batch_rows=8 train.ranks=1 "
    "train.warmup_steps=2 evaluate.samples=1 evaluate.sample_tokens=12 evaluate.bootstrap_draws=100 "
    "promote.draws=2000"
)
Manifests = dict[str, dict[str, Any]]


class Runs:
    """Runs of the pipeline on one store."""

    def __init__(self, folder: Path, shard_characters: int, steps: int) -> None:
        self.folder, self.data = folder, folder / "data"
        self.settings = {
            "data_sources": str(self.data),
            "train_steps": str(steps),
            "model_vocabulary": "4096",
            "options": f"{OPTIONS} curate.shard_characters={shard_characters} "
            f"balance.shard_characters={shard_characters}",
        }

    def run(self) -> dict[str, float]:
        """One run: task -> its CPU seconds."""
        command = [sys.executable, "-m", "yanmo.cli", "run", f"--store={self.folder / 'store'}"]
        sets = [f"--set={name}={value}" for name, value in self.settings.items()]
        done = subprocess.run([*command, f"--channel={CHANNEL}", *sets], capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"yanmo run ended with {done.returncode}\n{done.stderr[-3000:]}")
        rows = re.findall(r"^([a-z][a-z -]+?) +\d+\.\d +(\d+\.\d)", done.stdout, flags=re.MULTILINE)
        return {name: float(seconds) for name, seconds in rows}

    def manifests(self) -> Manifests:
        """`stage/key` -> manifest of all outputs."""
        found = (self.folder / "store").glob("cas/*/*/MANIFEST.json")
        return {"/".join(p.parts[-3:-1]): json.loads(p.read_text(encoding="utf-8")) for p in found}

    def folder_of(self, stage: str) -> Path:
        """The folder of the channel's newest output of a stage."""
        body = json.loads(
            (self.folder / f"store/pointers/{CHANNEL}/{stage}.json").read_text(encoding="utf-8")
        )
        found = self.folder / "store/cas" / stage / body["key"]
        return found / json.loads((found / "MANIFEST.json").read_text(encoding="utf-8"))["attempt"]

    def newest(self, stage: str) -> dict[str, str]:
        """File -> sha256, of the content of the channel's newest output of a stage."""
        pointer = self.folder / f"store/pointers/{CHANNEL}/{stage}.json"
        key = json.loads(pointer.read_text(encoding="utf-8"))["key"]
        files = self.manifests()[f"{stage}/{key}"]["files"]
        return {each["path"]: each["sha256"] for each in files if each["role"] == "content"}


def lines(corpus: Path) -> list[bytes]:
    """The documents of a corpus, as they stand there."""
    with zstandard.open(corpus, "rb") as file:
        return list(file.read().splitlines(keepends=True))


def bytes_of(manifest: dict[str, Any]) -> int:
    return sum(each["bytes"] for each in manifest["files"])


def outputs(before: Manifests, after: Manifests) -> Iterator[str]:
    """A row for each kind of output."""
    for kind in KINDS:
        now = [name for name in after if name.startswith(f"{kind}/")]
        new = [name for name in now if name not in before]
        yield f"| `{kind}` | {len(now)} | {len(new)} | {sum(bytes_of(after[name]) for name in new):,} |"


def shards(before: dict[str, dict[str, str]], after: dict[str, dict[str, str]]) -> Iterator[str]:
    """A row for each kind of file that is cut into shards."""
    for kind, begins in SHARDED.items():
        for begin in begins:
            known = {digest for name, digest in before[kind].items() if name.startswith(begin)}
            now = [digest for name, digest in after[kind].items() if name.startswith(begin)]
            new = [digest for digest in now if digest not in known]
            yield f"| `{kind}`: `{begin}-*.parquet` | {len(now)} | {len(new)} |"


def cpu_seconds(work: Callable[[], object], repeats: int = 5) -> float:
    """The least of some tries: this process' own, in one thread."""
    found = []
    for _ in range(repeats):
        begin = time.process_time()
        work()
        found.append(time.process_time() - begin)
    return min(found)


def beside_reuse(runs: Runs) -> str:
    """CPU seconds to tokenize a file of training text, and to take over its tokens from another file."""
    documents = runs.folder_of("balance") / next(iter(sorted(runs.newest("balance"))))
    cache = runs.folder_of("tokenize")
    tokenizer = runs.folder_of("tokenizer") / "tokenizer.json"
    tokens = cache / next(name for name in sorted(runs.newest("tokenize")) if name.startswith("tokens-"))
    index = tokens.with_name(tokens.name.replace("tokens-", "documents-"))
    segmenter = Segmenter.read(tokenizer)
    text = pq.read_table(documents, columns=["text"])["text"].nbytes
    with tempfile.TemporaryDirectory(dir=runs.folder) as scratch:
        job = file_task(documents, tokenizer, Path(scratch))
        segmenter.judge("春", segmenter.encode(pa.array(["春"]))[0].tolist())

        def take_over() -> None:
            for path in (tokens, index):
                hashlib.sha256(path.read_bytes())
            table, ids = pq.read_table(index), open_tokens(tokens).ids
            order = np.random.default_rng(0).permutation(table.num_rows)
            offset, length = table["offset"].to_numpy()[order], table["length"].to_numpy()[order]
            copied = np.concatenate([ids[at : at + n] for at, n in zip(offset, length, strict=True)])
            write_tokens(
                Path(scratch, "copied"), copied, vocab_size=segmenter.vocab_size, tokenizer="", split="train"
            )
            pq.write_table(table.take(order), Path(scratch, "index"))

        made, taken = cpu_seconds(lambda: tokenize_file(job, segmenter)), cpu_seconds(take_over)
    return (
        f"one file of {text / 1e6:.1f} MB of text: {made:.2f} CPU s to tokenize, {taken:.2f} CPU s to take "
        f"over from the run before, which reads {(tokens.stat().st_size + index.stat().st_size) / 1e6:.1f} MB"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, required=True, help="an empty one; it is kept")
    parser.add_argument("--corpus", type=Path, default=CORPUS, help="JSONL, .zst; default: the bundled one")
    parser.add_argument("--files", type=int, default=8, help="source files of the first run")
    parser.add_argument("--documents", type=int, default=9000, help="of the corpus, in the first run")
    parser.add_argument("--new", type=int, default=200, help="documents of the new one")
    parser.add_argument("--shard-characters", type=int, default=100_000)
    parser.add_argument("--steps", type=int, default=6)
    options = parser.parse_args()
    runs = Runs(options.folder.absolute(), options.shard_characters, options.steps)
    runs.data.mkdir(parents=True)
    rows = lines(options.corpus)[: options.documents + options.new]
    given, new = rows[options.new :], rows[: options.new]
    each = -(-len(given) // options.files)
    for number in range(options.files):
        part = given[number * each : (number + 1) * each]
        (runs.data / f"{number}.jsonl").write_bytes(b"".join(part))
    seconds = [runs.run()]
    before, files_before = runs.manifests(), {kind: runs.newest(kind) for kind in SHARDED}
    (runs.data / "new.jsonl").write_bytes(b"".join(new))
    seconds.append(runs.run())
    after, files_after = runs.manifests(), {kind: runs.newest(kind) for kind in SHARDED}
    seconds.append(runs.run())
    left = set(runs.manifests()) - set(after)
    print(
        f"{len(given)} documents in {options.files} files; {len(new)} in a new one, {os.cpu_count()} cores\n"
    )
    print("| outputs | all | new | bytes of the new |\n|---|---|---|---|")
    print("\n".join(outputs(before, after)))
    print("\n| files | all | with new bytes |\n|---|---|---|")
    print("\n".join(shards(files_before, files_after)))
    print("\n| task, CPU s | first run | a new file | nothing new |\n|---|---|---|---|")
    for name in seconds[0]:
        print(f"| `{name}` | {' | '.join(f'{one.get(name, 0.0):.1f}' for one in seconds)} |")
    print(f"\n{beside_reuse(runs)}")
    print(f"\nmade by the run with nothing new: {', '.join(sorted(left)) or 'nothing'}")


if __name__ == "__main__":
    main()
