"""The steps of `yanmo curate` in datatrove, run by bench/of_curation.py in datatrove's environment.

    python curate_datatrove.py DOCUMENTS.jsonl FOLDER TASKS WORKERS

Reads, normalizes, filters, finds near duplicates over Han 4-grams, writes Parquet. The shingles are ours
(their word tokenizers for Chinese are slower and cut verse apart); hashing, buckets, clusters and files are
theirs.
"""

from __future__ import annotations

import re
import sys
import unicodedata

import numpy as np
import opencc
from datatrove.executor import LocalPipelineExecutor
from datatrove.pipeline.dedup import (
    MinhashDedupBuckets,
    MinhashDedupCluster,
    MinhashDedupFilter,
    MinhashDedupSignature,
    minhash,
)
from datatrove.pipeline.dedup.minhash import MinhashConfig
from datatrove.pipeline.filters import LambdaFilter
from datatrove.pipeline.formatters.base import BaseFormatter
from datatrove.pipeline.readers import JsonlReader, ParquetReader
from datatrove.pipeline.writers import ParquetWriter

CONFIG = MinhashConfig(n_grams=4, num_buckets=20, hashes_per_bucket=5)
"""Documents meet with probability 0.47 at Jaccard 0.5, 0.80 at 0.6, 0.05 at 0.3; nothing is compared."""

HAN = re.compile("[\u3400-\u9fff\U00020000-\U0003ffff〇]")
WHITE = re.compile("[\\s\u3000\ufeff\u200b-\u200f\\x00-\\x1f]+")
TAGS = re.compile("<[^<>]{1,300}>|&[A-Za-z]{2,31};")
MARKS = str.maketrans(",;:?!(｡､.「」『』﹐﹑．〔〕［］[])", "，；：？！（。、。“”‘’，、。（）（）（））")
VARIANTS = str.maketrans(
    "厯歴隂𤣥髙黄逺巻彚徳羣竒緫兎氷黙羙絶㑹甞埀觧㡬㣲濵栁閒鬰葢㳺揺缺",
    "历历阴玄高黄远卷汇德群奇总兔冰默美绝会尝垂解几微滨柳间郁盖游摇缺",
)


class Normalize(BaseFormatter):
    """Text form classical-1, a document at a time."""

    name = "classical-1"

    def __init__(self) -> None:
        super().__init__()
        self.convert = None

    def format(self, text: str) -> str:
        if self.convert is None:
            self.convert = opencc.OpenCC("t2s").convert
        if "<" in text or "&" in text:
            text = TAGS.sub("", text)
        lines = (
            WHITE.sub(
                "", self.convert(unicodedata.normalize("NFC", line)).translate(VARIANTS).translate(MARKS)
            )
            for line in text.splitlines()
        )
        return "\n".join(line for line in lines if line)


def passes(document: object) -> bool:
    """The basic filters of `yanmo curate`."""
    text: str = document.text
    han, size = len(HAN.findall(text)), len(text) - text.count("\n")
    lost = sum(map(text.count, "□〓\ufffd"))
    return han >= 10 and 2 * han >= size and lost <= 0.03 * size and size <= 1_000_000 and "表略" not in text


class Signature(MinhashDedupSignature):
    """Signatures over runs of four Han characters."""

    def __init__(self, folder: str) -> None:
        minhash.load_word_tokenizer = lambda _: None  # it would want spacy, which is not used
        super().__init__(folder, CONFIG)

    def get_shingles(self, text: str) -> np.ndarray:
        han = "".join(HAN.findall(text))
        hashed = [self._hash_func(han[i : i + 4]) for i in range(len(han) - 3)]
        return np.array(hashed, dtype=np.uint64).reshape(-1, 1)


def main() -> None:
    source, folder, tasks, workers = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])

    def run(name: str, pipeline: list[object], tasks: int, workers: int) -> None:
        logs = f"{folder}/logs/{name}"
        LocalPipelineExecutor(pipeline, tasks=tasks, workers=workers, logging_dir=logs).run()

    clean = [JsonlReader(source, text_key="text", id_key="id"), Normalize(), LambdaFilter(passes)]
    run(
        "clean", [*clean, ParquetWriter(f"{folder}/clean"), Signature(f"{folder}/signatures")], tasks, workers
    )
    buckets = MinhashDedupBuckets(f"{folder}/signatures", f"{folder}/buckets", config=CONFIG)
    run("buckets", [buckets], CONFIG.num_buckets, workers)
    cluster = MinhashDedupCluster(f"{folder}/buckets", f"{folder}/remove", CONFIG, save_cluster_id=True)
    run("cluster", [cluster], 1, 1)
    kept = MinhashDedupFilter(f"{folder}/remove", load_cluster_ids=True)
    run("write", [ParquetReader(f"{folder}/clean"), kept, ParquetWriter(f"{folder}/kept")], tasks, workers)


if __name__ == "__main__":
    main()
