"""Small files that ask for gigabytes, hours or a panic end with 65 or 64, soon, and say what is wrong."""

from __future__ import annotations

import json
import resource
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer

from yanmo.common.errors import DataError, UsageError
from yanmo.common.foreign import foreign
from yanmo.curate.sources.batches import open_parquet
from yanmo.curate.sources.listing import Source
from yanmo.formats.round_trip import check_round_trip, open_tokenizer
from yanmo.model.hf_export import read_tensors
from yanmo.model.weights_check import read_headers
from yanmo.options.yaml_file import read_yaml

CHEAP_SECONDS, CHEAP_BYTES = 2.0, 64 << 20
"""Of a refusal: CPU, and memory beyond what the process has had before."""


@pytest.fixture
def cheaply() -> Callable[[], None]:
    """Checks that what happened since took little CPU and memory."""
    began, had = time.process_time(), _peak()

    def check() -> None:
        assert time.process_time() - began < CHEAP_SECONDS
        assert _peak() - had < CHEAP_BYTES

    return check


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def laughs(name: str) -> str:
    """A YAML whose ninth line stands for a billion words."""
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 10)]
    return "\n".join([*lines, f"{name}: *a9"])


def test_yaml_whose_aliases_stand_for_a_billion_words(tmp_path: Path, cheaply: Callable[[], None]) -> None:
    path = tmp_path / "bomb.yaml"
    path.write_text(laughs("sources"), encoding="utf-8")
    with pytest.raises(UsageError, match="line 2, column 10: expected the value itself, found an alias"):
        read_yaml(path)
    cheaply()


def test_a_yaml_that_names_itself(tmp_path: Path) -> None:
    path = tmp_path / "loop.yaml"
    path.write_text("a: &a [*a]\n", encoding="utf-8")
    with pytest.raises(UsageError, match="found an alias"):
        read_yaml(path)


def tokenizer_with(pattern: str) -> dict[str, object]:
    split = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
    model = {"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": []}
    empty = dict.fromkeys(("truncation", "padding", "normalizer", "post_processor", "decoder"))
    return {"version": "1.0", "added_tokens": [], **empty, "pre_tokenizer": split, "model": model}


@pytest.mark.parametrize("method", ["encode", "encode_batch", "encode_batch_fast", "check"])
def test_a_tokenizer_whose_regex_gives_up_is_wrong_data(
    tmp_path: Path, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its panic is a BaseException of pyo3's."""
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "false")
    path, text = tmp_path / "tokenizer.json", "a" * 40 + "b"
    path.write_text(json.dumps(tokenizer_with("(a+)+$")), encoding="utf-8")
    with pytest.raises(BaseException, match="retry-limit") as caught:
        Tokenizer.from_file(str(path)).encode(text)
    assert not isinstance(caught.value, Exception)
    tokenizer = open_tokenizer(path)
    with pytest.raises(DataError, match=f"{path}: this tokenizer fails at a text: .*retry-limit"):
        if method == "check":
            check_round_trip(tokenizer, [("a text", text)], str(path))
        else:
            getattr(tokenizer, method)(text if method == "encode" else [text])


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(143), MemoryError(), UsageError("x")])
def test_the_border_lets_pass_what_no_library_means(error: BaseException) -> None:
    with pytest.raises(type(error)), foreign("x: no file"):
        raise error


def test_a_safetensors_header_that_claims_three_gigabytes(
    tmp_path: Path, cheaply: Callable[[], None]
) -> None:
    path = tmp_path / "model.safetensors"
    with path.open("wb") as file:  # sparse: it takes no room
        file.write(struct.pack("<Q", 3 << 30) + b"{")
        file.truncate((3 << 30) + 8)
    with pytest.raises(DataError, match="header too large"):
        read_headers(tmp_path)
    cheaply()


@pytest.mark.parametrize(
    ("header", "why"),
    [
        ('{"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4], "x": ' + "[" * 100_000 + "]" * 100_000
         + "}}", "recursion limit"),
        ('{"a": ["F32", [1], [0, 4]]}', "names no fields"),  # the library itself takes it
        ('{"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}, '
         '"b": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}', "invalid offset"),
        ('{"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4], "x": "\\ud800"}}', "hex escape"),
        ('{"a": {"dtype": "F32", "shape": [4611686018427387904, 8], "data_offsets": [0, 4]}}', "overflow"),
    ],
    ids=["deep", "a list", "overlapping", "half a character", "a shape beyond everything"],
)  # fmt: skip
def test_a_safetensors_header_that_makes_no_sense(header: str, why: str, tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(struct.pack("<Q", len(header)) + header.encode() + bytes(4))
    with pytest.raises(DataError, match=f"{path}: not a readable safetensors file: .*{why}"):
        read_headers(tmp_path)


def test_a_damaged_safetensors_file_is_wrong_data(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    save_file({"a": torch.zeros(4)}, path)
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(DataError, match=f"{path}: not a readable safetensors file: "):
        read_tensors(path)


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Written by another process, whose memory is not ours."""
    path = tmp_path_factory.mktemp("wide") / "wide.parquet"
    code = (
        "import sys, pyarrow as pa, pyarrow.parquet as pq; "
        "table = pa.table({f'c{n}': pa.nulls(0, pa.string()) for n in range(40_000)}); "
        "pq.write_table(table, sys.argv[1], store_schema=False)"
    )
    subprocess.run([sys.executable, "-c", code, str(path)], check=True)
    return path


def test_a_parquet_file_of_very_many_columns(wide: Path, cheaply: Callable[[], None]) -> None:
    source = Source(
        name="wide.parquet",
        uri=wide.as_uri(),
        bytes=wide.stat().st_size,
        version="1",
        sha256="0" * 64,
        form="parquet",
        compression="",
    )
    with (
        pytest.raises(DataError, match="not a readable Parquet file: "),
        open_parquet(source, "wide.parquet"),
    ):
        pass
    cheaply()
