"""Speed of segmentation, side by side in one process: MB of UTF-8 per CPU-second of one thread.

    python benchmarks/tokens.py [--megabytes 4] [--repeats 3] [--sentencepiece /path/to/python] [--times 10]

Peers: jieba and rjieba (HMM off; they give words, not ids), Hugging Face's Unigram on the same vocabulary,
its byte-level BPE (cut by GPT-2's pattern, trained here on a part of the text), and SentencePiece, which
wants an environment of its own, named by --sentencepiece and made with `pip install sentencepiece`.
CPU seconds and not wall time, so that a busy machine blurs the figures less; compare rows of one run only.

Then the stage as a user runs it, a process of its own over a store on local disk: documents to a committed
cache with one and two workers, again with nothing changed, and again with one of its files changed. The
text is --megabytes of the bundled corpus, --times over, each time as documents of their own.
(The file is not called tokenize.py: as a script it would hide Python's own module of that name.)
"""

from __future__ import annotations

import argparse
import io
import itertools
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ["RAYON_NUM_THREADS"] = "1"  # before tokenizers is imported: it would use every core

import numpy as np
import pyarrow as pa
import zstandard

from yanmo.formats.records import DOCUMENTS, document_id, write_parquet
from yanmo.store.commit import Attempt, Recipe, Result, commit_once
from yanmo.store.file_store import FileStore
from yanmo.store.output import Output, open_reference
from yanmo.store.pointers import move_pointer, read_pointer
from yanmo.tokenize.lexicon import dictionary_path, jieba_tokenizer, read_lexicon
from yanmo.tokenize.segmenter import Segmenter
from yanmo.tokenize.shards import FileTask, tokenize_file
from yanmo.tokenize.tokenizer_files import special_ids, tokenizer_json, write_tokenizer
from yanmo.tokenize.vocabulary import Counts, Vocabulary, choose, dictionary_segmenter

CORPUS = Path(__file__).parents[1] / "corpus" / "small.jsonl.zst"
PEER = Path(__file__).parent / "tokens_sentencepiece.py"
FILES = 10
"""Files of documents that the stage's text is cut into."""
JIEBA_SHARE = 16
"""jieba is so slow that it gets one document in this many."""


def documents(megabytes: float) -> list[dict[str, str]]:
    """Documents of the bundled corpus, up to this much text."""
    found, size = [], 0
    with zstandard.open(CORPUS, "rb") as file:
        for line in io.TextIOWrapper(file, encoding="utf-8"):
            found.append(json.loads(line))
            size += len(found[-1]["text"].encode())
            if size >= megabytes * 1e6:
                break
    return found


def speed(texts: list[str], encode: Callable[[], object], repeats: int) -> float:
    """Best MB per CPU-second."""
    size, best = sum(len(text.encode()) for text in texts) / 1e6, float("inf")
    for _ in range(repeats):
        start = time.process_time()
        encode()
        best = min(best, time.process_time() - start)
    return size / best


def vocabularies(texts: pa.Array, genres: pa.Array, sizes: list[int]) -> tuple[Segmenter, list[Vocabulary]]:
    """The full dictionary's segmenter and vocabularies of some sizes."""
    lexicon = read_lexicon(dictionary_path())
    words, counts = dictionary_segmenter(lexicon), Counts()
    counts.add(pa.RecordBatch.from_arrays([texts, genres], ["text", "genre"]), words)
    return words, [
        choose(
            counts,
            lexicon,
            words,
            size=size,
            min_character_count=3,
            character_share=0.85,
            dictionary_weight=0.01,
        )
        for size in sizes
    ]


def table_of(docs: list[dict[str, str]], copy: int = 0) -> pa.Table:
    """Documents v1 of the training split; `copy` makes other documents of the same texts."""
    rows = [
        {
            "id": document_id(d["source"], f"{d['title']}{copy}", d["text"]),
            "text": d["text"],
            "genre": d["genre"],
            "labels": [],
            "title": d["title"],
            "author": d["author"],
            "source": d["source"],
            "license": "",
            "split": "train",
        }
        for d in docs
    ]
    return pa.Table.from_pylist(rows, schema=DOCUMENTS)


def file_task(documents: Path, tokenizer: Path, out: Path) -> FileTask:
    """A file of training documents to tokenize, as the stage does it."""
    return FileTask(
        documents=documents,
        split="train",
        tokenizer=tokenizer,
        tokenizer_digest="",
        bos=0,
        eos=1,
        out=out,
        name="x",
        judged=1024,
    )


def file_speed(docs: list[dict[str, str]], vocabulary: Vocabulary, repeats: int) -> float:
    """MB per CPU-second from a documents file to a token file and its index, judging as the stage does."""
    with tempfile.TemporaryDirectory() as folder:
        path, tokenizer = Path(folder) / "train.parquet", Path(folder) / "tokenizer.json"
        write_parquet(table_of(docs), path)
        tokenizer.write_text(tokenizer_json(vocabulary), encoding="utf-8")
        job = file_task(path, tokenizer, Path(folder))
        segmenter = Segmenter.read(tokenizer)
        segmenter.judge("春", segmenter.encode(pa.array(["春"]))[0].tolist())  # tables and judge are loaded
        return speed([d["text"] for d in docs], lambda: tokenize_file(job, segmenter), repeats)


def byte_level_bpe(texts: list[str], size: int) -> Any:
    """A byte-level BPE of `size` pieces, trained on a part of the text."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(vocab_size=size, show_progress=False)
    tokenizer.train_from_iterator(texts[::4], trainer)
    return tokenizer


def sentencepiece_speed(python: str, texts: list[str], size: int, repeats: int) -> tuple[float, int]:
    """MB per CPU-second of SentencePiece, and its pieces."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "texts.json"
        path.write_text(json.dumps(texts), encoding="utf-8")
        command = [python, str(PEER), str(path), str(size), str(repeats)]
        found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return found["speed"], found["pieces"]


@dataclass
class Cost:
    """What one run of the stage took."""

    wall: float
    cpu: float
    bytes: int = 0


class Stage:
    """`yanmo tokenize` on a store of its own."""

    def __init__(self, root: Path, docs: list[dict[str, str]], times: int, vocabulary: Vocabulary) -> None:
        self.root, self.times = root, times
        self._docs, self._store = docs, FileStore(root)
        self._tables = [table_of(docs, copy) for copy in range(times)]
        self._tokenizer = self._commit_tokenizer(vocabulary)

    def _commit_tokenizer(self, vocabulary: Vocabulary) -> str:
        def build(attempt: Attempt) -> Result:
            write_tokenizer(attempt, vocabulary, special_ids(len(vocabulary.pieces), []))
            return Result(counts={})

        made = commit_once(self._store, Recipe(stage="tokenizer", revision=1, semantic={}, inputs={}), build)
        assert made is not None
        return f"tokenizer/{made.manifest.key}"

    def documents(self, changed: bool) -> None:
        """Commit the documents; `changed` drops the last one of the last file."""
        whole = pa.concat_tables(self._tables)
        bounds = [len(whole) * k // FILES for k in range(FILES + 1)]
        bounds[-1] -= changed

        def build(attempt: Attempt) -> Result:
            for k, (begin, end) in enumerate(itertools.pairwise(bounds)):
                name = f"train-{k:05d}-of-{FILES:05d}.parquet"
                write_parquet(whole.slice(begin, end - begin), attempt.path(name))
                attempt.add(name)
            return Result(counts={})

        made = commit_once(
            self._store, Recipe(stage="curate", revision=1, semantic={"c": changed}, inputs={}), build
        )
        assert made is not None
        move_pointer(self._store, "dev", "curate", made.reference)

    def run(self, workers: int) -> Cost:
        command = [sys.executable, "-m", "yanmo.tokenize", "--store", str(self.root), "--metrics-port=-1"]
        command += [f"--workers={workers}", f"--tokenizer={self._tokenizer}", "--log-level=warning"]
        before, start = _children(), time.monotonic()
        subprocess.run(command, check=True)
        return Cost(time.monotonic() - start, _children() - before, self.bytes)

    @property
    def bytes(self) -> int:
        """UTF-8 of all texts."""
        return self.times * sum(len(d["text"].encode()) for d in self._docs)

    @property
    def cache(self) -> Output:
        return open_reference(self._store, read_pointer(self._store, "dev", "tokenize"))

    def forget(self) -> None:
        """Remove what was tokenized."""
        for stage in ("tokenize", "token_shard"):
            shutil.rmtree(self.root / "cas" / stage)


def _children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def show_stage(docs: list[dict[str, str]], times: int, vocabulary: Vocabulary) -> None:
    """Run the stage in every way and print what it took."""
    with tempfile.TemporaryDirectory() as folder:
        stage = Stage(Path(folder), docs, times, vocabulary)
        stage.documents(changed=False)
        rows = [("documents to committed cache, 1 worker", stage.run(1))]
        rows.append(("again, nothing changed", stage.run(1)))
        alone = stage.cache.content_digest
        stage.forget()
        rows.append(("documents to committed cache, 2 workers", stage.run(2)))
        assert stage.cache.content_digest == alone, "two workers wrote another cache than one"
        stage.documents(changed=True)
        rows.append((f"again, 1 of {FILES} files changed", stage.run(1)))
        reused = stage.cache.content_digest
        stage.forget()
        stage.run(1)
        assert stage.cache.content_digest == reused, (
            "the cache of reused parts is not that of a run from nothing"
        )
    start = rows[1][1].cpu
    print(f"\nthe stage, {stage.bytes / 1e6:.1f} MB of text in {FILES} files; all caches equal byte for byte")
    print(f"{'':42}{'wall s':>8}{'CPU s':>8}{'MB/CPU-s':>10}{'without start':>15}")
    for name, cost in rows:
        print(f"{name:42}{cost.wall:8.2f}{cost.cpu:8.2f}", end="")
        if "committed" in name:
            print(
                f"{stage.bytes / 1e6 / cost.cpu:10.1f}{stage.bytes / 1e6 / (cost.cpu - start):15.1f}", end=""
            )
        print()
    print(f"2 workers are {rows[0][1].wall / rows[2][1].wall:.2f} times as fast as one, by wall time")


def main() -> None:
    command = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    command.add_argument("--megabytes", type=float, default=4.0, help="text to segment, at most 10.7")
    command.add_argument("--repeats", type=int, default=3, help="the best of this many is shown")
    command.add_argument("--sentencepiece", default="", help="python of an environment with sentencepiece")
    command.add_argument("--times", type=int, default=10, help="how often the stage gets the text; 0: never")
    options = command.parse_args()
    docs = documents(options.megabytes)
    texts = [d["text"] for d in docs]
    column = pa.array(texts)

    start = time.process_time()
    words, chosen = vocabularies(column, pa.array([d["genre"] for d in docs]), [8192, 32768])
    start_up = time.process_time() - start

    import rjieba

    jieba, few = jieba_tokenizer(), texts[::JIEBA_SHARE]
    rows = [
        ("jieba", speed(few, lambda: [jieba.lcut(text, HMM=False) for text in few], options.repeats)),
        ("rjieba", speed(texts, lambda: [rjieba.cut(text, False) for text in texts], options.repeats)),
    ]
    for vocabulary in chosen:
        size, segmenter = len(vocabulary.pieces), Segmenter.of(vocabulary.pieces, vocabulary.scores, 3)
        reference = segmenter.reference
        rows.append(
            (
                f"Hugging Face Unigram {size}",
                speed(texts[::4], lambda r=reference: r.encode_batch_fast(texts[::4]), options.repeats),
            )
        )
        rows.append((f"kernel {size}", speed(texts, lambda s=segmenter: s.encode(column), options.repeats)))
        ids, offsets, _ = segmenter.encode(column)
        expected = [e.ids for e in reference.encode_batch_fast(texts[::4])]
        same = all(
            np.array_equal(ids[offsets[4 * k] : offsets[4 * k + 1]], want) for k, want in enumerate(expected)
        )
        assert same, "the kernel's ids differ from those of tokenizers"
    bpe = byte_level_bpe(texts, 32768)
    rows.append(
        (
            f"Hugging Face BPE {bpe.get_vocab_size()}",
            speed(texts[::4], lambda: bpe.encode_batch_fast(texts[::4]), options.repeats),
        )
    )
    if options.sentencepiece:
        found, pieces = sentencepiece_speed(options.sentencepiece, texts[::4], 32768, options.repeats)
        rows.append((f"SentencePiece Unigram {pieces}", found))
    rows.append(("kernel, whole dictionary", speed(texts, lambda: words.encode(column), options.repeats)))
    rows.append(("documents to cache, 8192", file_speed(docs, chosen[0], options.repeats)))

    print(f"{len(texts)} documents, {sum(len(t.encode()) for t in texts) / 1e6:.1f} MB, one thread")
    print(f"{'':28}{'MB/CPU-s':>9}{'x jieba':>9}{'x rjieba':>9}")
    for name, value in rows:
        print(f"{name:28}{value:9.2f}{value / rows[0][1]:9.1f}{value / rows[1][1]:9.1f}")
    print(f"dictionary, compiling (or its cache), counting words, two vocabularies: {start_up:.1f} CPU-s")
    if options.times:
        show_stage(docs, options.times, chosen[0])


if __name__ == "__main__":
    main()
