"""`yanmo curate` beside datatrove doing the same steps."""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.declared import Benchmark, Group, Place


@contextmanager
def opened(place: Place) -> Iterator[list[Group]]:
    """The bundled text as a file; each round writes what it makes into folders of its own."""
    import curate
    import zstandard

    # Workers whose parent ended become ours, so that their seconds are counted.
    ctypes.CDLL(None).prctl(curate._SUBREAPER, 1, 0, 0, 0)
    source, numbers = place.folder / "small.jsonl", itertools.count()
    with zstandard.open(curate.CORPUS, "rb") as packed:
        source.write_bytes(packed.read())
    documents = sum(1 for _ in source.open("rb"))

    def empty() -> Path:
        folder = place.folder / str(next(numbers))
        folder.mkdir()
        return folder

    def of_ours() -> float:
        return documents / curate.ours(source, empty(), 1)[0].cpu

    def of_theirs() -> float:
        return documents / curate.datatrove(place.peer, source, empty())[0].cpu

    titles = ("The bundled text, 10.7 MB, one worker", "随项目提供的文字，10.7 MB，一个工作进程")
    yield [Group(titles, {"yanmo curate": of_ours, "datatrove": of_theirs})]


BENCHMARK = Benchmark(
    name="curation",
    title=("Curation", "整理"),
    unit=("documents per CPU second", "每 CPU 秒文档数"),
    about=(
        "Reading, cleaning, filters and near duplicates over Han 4-grams, from start to exit, all processes "
        "counted. The shingles in datatrove are ours, as its Chinese word tokenizers are slower; hashing, "
        "buckets, clusters and files are its own. Ours also splits, hashes its files and syncs them to disk.",
        "读取、清洗、过滤、按汉字四元组查近似重复，从启动到退出，所有进程都计入。datatrove 里的切片用"
        "我们的（它的中文分词器更慢）；哈希、分桶、聚类和文件都是它自己的。我们还要划分数据集、为文件"
        "求哈希并同步到磁盘。",
    ),
    open=opened,
    packages=(
        *("datatrove==0.10.1", "pyarrow", "xxhash==3.6.0", "numpy", "opencc", "orjson", "zstandard"),
        *("regex", "tokenizers"),
    ),
    is_apart=True,
    rounds=6,
    minutes=9,
)
