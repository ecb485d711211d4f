"""Speed of segmentation, side by side in one process: MB of UTF-8 per CPU-second of one thread.

    python benchmarks/tokens.py [--megabytes 4] [--repeats 3]

Peers: jieba and rjieba (HMM off; they give words, not ids), Hugging Face's Unigram on the same vocabulary.
CPU seconds and not wall time, so that a busy machine blurs the figures less; compare rows of one run only.
The last rows are the stage's own path, from a documents file to token files, and its cost at start.
(The file is not called tokenize.py: as a script it would hide Python's own module of that name.)
"""

from __future__ import annotations

import argparse
import io
import json
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

os.environ["RAYON_NUM_THREADS"] = "1"  # before tokenizers is imported: it would use every core

import numpy as np
import pyarrow as pa
import zstandard

from yanmo.common.records import DOCUMENTS, document_id, write_parquet
from yanmo.tokenize.agreement import jieba_tokenizer
from yanmo.tokenize.lexicon import dictionary_path, read_lexicon
from yanmo.tokenize.segmenter import Segmenter
from yanmo.tokenize.shards import Job, tokenize_file
from yanmo.tokenize.tokenizer_files import tokenizer_json
from yanmo.tokenize.vocabulary import Counts, Vocabulary, choose, dictionary_segmenter

CORPUS = Path(__file__).parents[1] / "corpus" / "small.jsonl.zst"
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


def stage_speed(docs: list[dict[str, str]], vocabulary: Vocabulary, repeats: int) -> float:
    """MB per CPU-second from a documents file to a token file and its index, judging as the stage does."""
    rows = [
        {
            "id": document_id(d["source"], d["title"], d["text"]),
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
    with tempfile.TemporaryDirectory() as folder:
        path, tokenizer = Path(folder) / "train.parquet", Path(folder) / "tokenizer.json"
        write_parquet(pa.Table.from_pylist(rows, schema=DOCUMENTS), path)
        tokenizer.write_text(tokenizer_json(vocabulary), encoding="utf-8")
        job = Job(
            documents=path,
            split="train",
            tokenizer=tokenizer,
            tokenizer_digest="",
            bos=0,
            eos=1,
            out=Path(folder),
            name="x",
            judged=256,
        )
        segmenter = Segmenter.read(tokenizer)
        segmenter.judge("春", segmenter.encode(pa.array(["春"]))[0].tolist())  # tables and judge are loaded
        return speed([d["text"] for d in docs], lambda: tokenize_file(job, segmenter), repeats)


def main() -> None:
    command = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    command.add_argument("--megabytes", type=float, default=4.0, help="text to segment, at most 10.7")
    command.add_argument("--repeats", type=int, default=3, help="the best of this many is shown")
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
        ("jieba", speed(few, lambda: [jieba.lcut(text, HMM=False) for text in few], 1)),
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
    rows.append(("kernel, whole dictionary", speed(texts, lambda: words.encode(column), options.repeats)))
    rows.append(("documents to cache, 8192", stage_speed(docs, chosen[0], options.repeats)))

    print(f"{len(texts)} documents, {sum(len(t.encode()) for t in texts) / 1e6:.1f} MB, one thread")
    print(f"{'':28}{'MB/CPU-s':>9}{'x jieba':>9}{'x rjieba':>9}")
    for name, value in rows:
        print(f"{name:28}{value:9.2f}{value / rows[0][1]:9.1f}{value / rows[1][1]:9.1f}")
    print(f"dictionary, compiling (or its cache), counting words, two vocabularies: {start_up:.1f} CPU-s")


if __name__ == "__main__":
    main()
