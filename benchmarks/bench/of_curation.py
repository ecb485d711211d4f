"""`yanmo curate` beside datatrove doing the same steps."""

from __future__ import annotations

import ctypes
import itertools
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import made_text

from bench.declared import Benchmark, Group, Place, Words

_ROOT = Path(__file__).parents[2]
_PEER = Path(__file__).parents[1] / "curate_datatrove.py"
_LONGER_BYTES = 60_000_000
_SUBREAPER = 36
"""PR_SET_CHILD_SUBREAPER: workers whose parent ended become ours, so that their seconds are counted."""


@contextmanager
def opened(place: Place) -> Iterator[list[Group]]:
    """The bundled text and longer ones as files; each round writes what it makes into folders of its own."""
    import zstandard

    ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)
    bundled, longer = place.folder / "bundled" / "text.jsonl", place.folder / "longer" / "text.jsonl"
    for source in (bundled, longer):
        source.parent.mkdir()
    with zstandard.open(_ROOT / "corpus" / "small.jsonl.zst", "rb") as packed:
        bundled.write_bytes(packed.read())
    made_text.write(longer, _LONGER_BYTES)
    of_bundled = "Curation of the bundled text, 10.7 MB", "整理随项目提供的文字，10.7 MB"
    of_longer = "Curation of texts of 2.7 KB, 60 MB", "整理每篇 2.7 KB 的文字，60 MB"
    yield [_group(place, of_bundled, bundled), _group(place, of_longer, longer)]


def _group(place: Place, title: Words, source: Path) -> Group:
    documents, numbers = sum(1 for _ in source.open("rb")), itertools.count()
    out = place.folder / f"{source.parent.name}-out"

    def of_ours() -> float:
        command = [sys.executable, "-m", "yanmo.curate", "--sources", str(source), "--workers", "1"]
        command += ["--store", str(out / str(next(numbers))), "--label-fields", "id"]
        command += ["--overlap-characters", "0", "--metrics-port", "-1"]
        return documents / _cpu_seconds(command, place.folder / "ours.log")

    def of_theirs() -> float:
        command = [place.peer, str(_PEER), str(source.parent), str(out / str(next(numbers))), "1", "1"]
        return documents / _cpu_seconds(command, place.folder / "datatrove.log")

    return Group(title, {"yanmo curate": of_ours, "datatrove": of_theirs})


def _cpu_seconds(command: list[str], log: Path) -> float:
    """What a command took to its end, all its processes together."""
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT)
    spent = 0.0
    while True:
        try:
            pid, status, usage = os.wait4(-1, 0)
        except ChildProcessError:
            return spent
        if pid == process.pid and status:
            sys.exit(f"{' '.join(command)} failed:\n{log.read_text(errors='replace')[-3000:]}")
        spent += usage.ru_utime + usage.ru_stime


BENCHMARK = Benchmark(
    name="curation",
    title=("Curation", "整理"),
    unit=("documents per CPU second", "每 CPU 秒文档数"),
    about=(
        "from start to exit with one worker, all processes counted. The longer texts are made by "
        "benchmarks/made_text.py. The shingles in datatrove are ours, as its Chinese word tokenizers are "
        "slower.",
        "一个工作进程，从启动到退出，所有进程都计入。较长的文字由 benchmarks/made_text.py 生成。"
        "datatrove 的切片用我们的，因为它的中文分词器更慢。",
    ),
    open=opened,
    packages=(
        *("datatrove==0.10.1", "pyarrow", "xxhash==3.6.0", "numpy", "opencc", "orjson", "zstandard"),
        *("regex", "tokenizers"),
    ),
    is_apart=True,
    rounds=6,
    minutes=14,
)
