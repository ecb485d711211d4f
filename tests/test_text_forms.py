"""Text of a form other than the default goes the whole road, and is never compared with the default's."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from yanmo.store.file_store import FileStore
from yanmo.store.output import Output, open_reference
from yanmo.store.pointers import read_pointer

ROOT = Path(__file__).parents[1]
TINY = (
    "--steps 2 --ranks 1 --batch-rows 4 --context 32 --layers 1 --width 32 --heads 1 --head-width 16 "
    "--feed-forward 32 --warmup-steps 1 --device cpu"
)


def _write_modern(path: Path) -> Path:
    themes = ["研究 AI", "写 Python 3.11 程序", "读《论语》", "修理一台 3D 打印机", "讨论 GDP 与 CPI"]
    people = ["张三", "李四", "王五", "赵六", "孙七", "周八", "吴九", "郑十"]
    with path.open("w", encoding="utf-8") as file:
        for i in range(160):
            text = f"{people[i % 8]}决定{themes[i // 8 % 5]}(用了 {i * 37 % 991} 分钟), 第{i}天才做完.\n"
            text += f"结果如何? 编号{i * 7919}的人说: 还不错, 可以再来." * 2
            file.write(
                json.dumps({"text": text, "genre": "文", "source": f"s{i}"}, ensure_ascii=False) + "\n"
            )
    return path


def _run(store: Path, stage: str, *arguments: str, expect: int = 0) -> str:
    command = [sys.executable, "-m", f"yanmo.{stage}", "--store", str(store), "--metrics-port", "-1"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "components")}
    done = subprocess.run([*command, *arguments], capture_output=True, text=True, env=environment)
    assert done.returncode == expect, f"{stage}: {done.stderr[-3000:]}"
    return done.stderr


def _output(root: Path, name: str, channel: str = "dev") -> Output:
    store = FileStore(root)
    pointer = read_pointer(store, channel, name)
    assert pointer is not None, name
    return open_reference(store, pointer)


@pytest.mark.road
def test_modern_text_keeps_its_form_from_curate_to_evaluate(tmp_path: Path) -> None:
    store, modern = tmp_path / "store", _write_modern(tmp_path / "modern.jsonl")
    near = ("--near-duplicate-similarity", "0", "--overlap-characters", "0")
    _run(store, "curate", "--sources", str(modern), "--text-form", "modern-1", *near)
    _run(store, "balance")
    _run(store, "tokenize", "--vocab-size", "1024")
    _run(store, "train", *TINY.split())
    _run(store, "evaluate", "--samples", "0")
    for name in ("curate", "evaluation_set", "balance", "tokenizer", "tokenize", "train", "evaluate"):
        assert _output(store, name).manifest.metadata["text_form"] == "modern-1", name
    train = _output(store, "balance").paths("train-*.parquet")[0]
    assert pq.read_schema(train).metadata[b"yanmo.text_form"] == b"modern-1"
    assert any("Python 3.11 程序(用了" in text for text in pq.read_table(train)["text"].to_pylist())
    _run(store, "curate", "--sources", str(modern), *near, "--text-form", "classical-1", "--channel", "other")
    other = tmp_path / "classical.json"
    other.write_text(_output(store, "evaluation_set", "other").reference.to_json(), encoding="utf-8")
    refused = _run(store, "evaluate", "--evaluation-set", str(other), "--samples", "0", expect=65)
    assert "a model of text of form 'modern-1'" in refused and "'classical-1'" in refused
