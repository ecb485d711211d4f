"""A GGUF file holds the model, and llama.cpp's server computes, cuts and asks as transformers does."""

from __future__ import annotations

import json
import os
import re
import socket
import struct
import subprocess
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
from safetensors.torch import load_file
from saying import random_model, saying_model

from yanmo.common.errors import ExitCode
from yanmo.formats.round_trip import open_tokenizer
from yanmo.tools.export.command import main

if TYPE_CHECKING:
    from conftest import Lab

TEXTS = [
    "春眠不觉晓，处处闻啼鸟。",
    "夜 来\n风雨声",
    "abc 𠀀\t|",
    " 风  ",
    "<0x41>春",
    "<|eos|>",
    "\u3000晓\r\n龘",
]
SHAPE = {
    "context_length": "max_position_embeddings",
    "embedding_length": "hidden_size",
    "block_count": "num_hidden_layers",
    "feed_forward_length": "intermediate_size",
    "vocab_size": "vocab_size",
    "attention.head_count": "num_attention_heads",
    "attention.head_count_kv": "num_key_value_heads",
    "attention.key_length": "head_dim",
    "attention.value_length": "head_dim",
    "attention.layer_norm_rms_epsilon": "rms_norm_eps",
    "rope.freq_base": "rope_theta",
}
"""llama.cpp's name -> the one of config.json."""
Ask = Callable[[str, Any], Any]


def export(lab: Lab, *argv: object) -> int:
    return main([*map(str, argv), "--store", lab.uri, "--for", "llama.cpp"])


class Read:
    """What a GGUF file holds, read by the format's own words: one value after another."""

    def __init__(self, path: Path) -> None:
        self.data, self.at = path.read_bytes(), 0
        assert self.take("4s") == b"GGUF" and self.take("I") == 3
        tensors, values = self.take("Q"), self.take("Q")
        self.values = {self.text(): self.value(self.take("I")) for _ in range(values)}
        heads = [(self.text(), self.sides(), self.take("I"), self.take("Q")) for _ in range(tensors)]
        begin = self.at + -self.at % 32
        self.tensors = {name: self.tensor(begin + at, *how) for name, *how, at in heads}

    def take(self, code: str) -> Any:
        (found,) = struct.unpack_from(f"<{code}", self.data, self.at)
        self.at += struct.calcsize(f"<{code}")
        return found

    def text(self) -> str:
        return str(self.take(f"{self.take('Q')}s").decode())

    def sides(self) -> list[int]:
        return [self.take("Q") for _ in range(self.take("I"))][::-1]

    def value(self, kind: int) -> Any:
        if kind == 9:
            inner, number = self.take("I"), self.take("Q")
            return [self.value(inner) for _ in range(number)]
        return self.text() if kind == 8 else self.take({4: "I", 5: "i", 6: "f", 7: "?"}[kind])

    def tensor(self, at: int, sides: list[int], kind: int) -> torch.Tensor:
        dtype = {0: torch.float32, 30: torch.bfloat16}[kind]
        count = int(torch.tensor(sides).prod())
        return torch.frombuffer(bytearray(self.data), dtype=dtype, count=count, offset=at).view(sides)


def test_a_gguf_export_that_is_given_as_a_model_is_called_one(lab: Lab, tmp_path: Path, capsys):
    random_model(tmp_path / "model")
    assert export(lab, tmp_path / "model", tmp_path / "out") == 0
    assert export(lab, tmp_path / "out", tmp_path / "again") == ExitCode.DATA
    assert "layout, found model.gguf, which is for llama.cpp and Ollama; name the" in capsys.readouterr().err


@pytest.mark.parametrize("tied", [False, True], ids=["untied", "tied"])
@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_the_file_holds_the_weights_and_the_vocabulary(lab: Lab, tmp_path: Path, dtype: str, tied: bool):
    random_model(tmp_path / "model", tie_word_embeddings=tied)
    assert export(lab, tmp_path / "model", tmp_path / "out", "--dtype", dtype) == 0
    found = Read(tmp_path / "out" / "model.gguf")
    weights = load_file(tmp_path / "model" / "model.safetensors")
    names = {
        "model.embed_tokens": "token_embd",
        "lm_head": "output",
        "model.layers.1.mlp.down_proj": "blk.1.ffn_down",
    }
    for theirs, ours in names.items():
        if theirs == "lm_head" and tied:
            assert "output.weight" not in found.tensors
            continue
        kind = torch.bfloat16 if dtype == "bf16" else torch.float32
        assert torch.equal(found.tensors[f"{ours}.weight"], weights[f"{theirs}.weight"].to(kind))
    assert torch.equal(
        found.tensors["blk.0.attn_q_norm.weight"], weights["model.layers.0.self_attn.q_norm.weight"]
    )
    assert len(found.tensors) == len(weights) - ("lm_head.weight" in weights and tied)
    tokenizer = open_tokenizer(tmp_path / "model" / "tokenizer.json")
    held = {name.removeprefix("tokenizer.ggml."): value for name, value in found.values.items()}
    assert held["tokens"] == [tokenizer.id_to_token(i) for i in range(tokenizer.get_vocab_size())]
    assert (held["model"], held["add_bos_token"], held["eos_token_id"]) == ("plamo2", False, 1)
    kinds = Counter(zip(held["token_type"], map(kind_of, held["tokens"]), strict=True))
    assert set(kinds) == {(1, "piece"), (2, "unknown"), (3, "mark"), (6, "byte")}, "llama.cpp's token types"
    assert kinds[2, "unknown"] == 1 and kinds[6, "byte"] == 256
    assert found.values["qwen3.attention.key_length"] == 16 and found.values["qwen3.context_length"] == 64
    config = json.loads((tmp_path / "model" / "config.json").read_text(encoding="utf-8"))
    assert {key: found.values[f"qwen3.{key}"] for key in SHAPE} == pytest.approx(
        {key: config[name] for key, name in SHAPE.items()}, rel=1e-6
    )
    merged = json.loads((tmp_path / "model" / "tokenizer.json").read_text(encoding="utf-8"))["model"]["vocab"]
    scores = [
        8 * score if kind == 1 else -10_000
        for (_, score), kind in zip(merged, held["token_type"], strict=True)
    ]
    assert held["scores"] == pytest.approx(scores, rel=1e-6)


def kind_of(piece: str) -> str:
    if piece == "<unk>":
        return "unknown"
    whole = re.fullmatch(r"<(\||0x).*>", piece)
    return "piece" if not whole else "mark" if whole[1] == "|" else "byte"


def test_beside_it_lie_card_record_and_a_modelfile(lab: Lab, tmp_path: Path):
    out = tmp_path / "out"
    assert export(lab, "main", out) == 0
    record = json.loads((out / "yanmo.json").read_text(encoding="utf-8"))
    assert (
        sorted(record["files"]) == ["Modelfile", "README.md", "model.gguf"] and record["for"] == "llama.cpp"
    )
    lines = (out / "Modelfile").read_text(encoding="utf-8").splitlines()
    assert lines[0] == "FROM ./model.gguf" and 'PARAMETER stop "<|im_end|>"' in lines
    assert export(lab, "main", out, "--overwrite") == 0


def test_other_models_are_refused(lab: Lab, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    random_model(tmp_path / "llama", model_type="llama")
    assert export(lab, tmp_path / "llama", tmp_path / "out") == ExitCode.USAGE
    assert "convert_hf_to_gguf.py" in capsys.readouterr().err and not (tmp_path / "out").exists()


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Callable[[Path], Ask]]:
    """Starts llama.cpp's server for a GGUF file."""
    place = os.environ.get("YANMO_LLAMA_CPP")
    if not place:
        pytest.skip("needs llama.cpp's server: YANMO_LLAMA_CPP=FOLDER with llama-server")
    started: list[subprocess.Popen[bytes]] = []

    def start(file: Path) -> Ask:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        command = [f"{place}/llama-server", "-m", str(file), "--host", "127.0.0.1", "--port", str(port)]
        command += ["--threads", "1", "-ctk", "f32", "-ctv", "f32"]
        with (tmp_path / "server.log").open("wb") as log:
            started.append(subprocess.Popen(command, stdout=log, stderr=log))

        def ask(path: str, body: Any = None) -> Any:
            data = json.dumps(body).encode() if body is not None else None
            request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", data)
            with urllib.request.urlopen(request, timeout=60) as answer:
                return json.load(answer)

        for _ in range(600):
            try:
                ask("/health")
                return ask
            except OSError:
                assert started[-1].poll() is None, (tmp_path / "server.log").read_text(errors="replace")[
                    -2000:
                ]
                time.sleep(0.1)
        raise AssertionError("llama-server does not answer")

    yield start
    for process in started:
        process.terminate()
        process.wait()


def test_llama_cpp_reads_and_computes_as_transformers_does(
    lab: Lab, tmp_path: Path, served: Callable[[Path], Ask]
) -> None:
    transformers = pytest.importorskip("transformers")
    assert export(lab, "main", tmp_path / "gguf") == 0
    assert main(["main", str(tmp_path / "hf"), "--store", lab.uri]) == 0
    ask = served(tmp_path / "gguf" / "model.gguf")
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "hf")
    ours = open_tokenizer(lab.folder / "tokenizer.json")
    for text in TEXTS:
        ids = ask("/tokenize", {"content": text, "parse_special": False})["tokens"]
        if "<" not in text:  # tokenizers takes what spells a byte or a mark for it; llama.cpp for text
            assert ids == ours.encode(text, add_special_tokens=False).ids, text
        assert ask("/detokenize", {"tokens": ids})["content"] == text
    messages = [{"role": "user", "content": "春眠\n不觉"}]
    prompt = ask("/apply-template", {"messages": messages})["prompt"]
    assert prompt == tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
    wanted = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
    assert ask("/tokenize", {"content": prompt})["tokens"] == wanted
    model = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "hf").eval()
    ids = torch.tensor([[0, *ours.encode("春眠不觉晓", add_special_tokens=False).ids]])
    with torch.no_grad():
        likely = model(ids).logits[0, -1].log_softmax(-1)
        goes_on = model.generate(ids, max_new_tokens=12, do_sample=False)[0, ids.shape[1] :].tolist()
    body = {"prompt": ids[0].tolist(), "temperature": 0, "return_tokens": True}
    first = ask("/completion", {**body, "n_predict": 1, "n_probs": 40})["completion_probabilities"][0]
    for each in first["top_logprobs"]:
        assert each["logprob"] == pytest.approx(likely[each["id"]].item(), abs=2e-3)
    found = ask("/completion", {**body, "n_predict": 12})["tokens"]
    assert found == goes_on[: len(found)] and (len(found) == 12 or goes_on[len(found)] in (1, 67))


def test_an_answer_ends_at_its_mark(lab: Lab, tmp_path: Path, served: Callable[[Path], Ask]) -> None:
    model = saying_model(tmp_path / "model", ["\n", "春", "眠", "<|im_end|>"])
    config = (lab.folder / "tokenizer_config.json").read_text(encoding="utf-8")
    (model / "tokenizer_config.json").write_text(config, encoding="utf-8")
    assert export(lab, model, tmp_path / "out") == 0
    ask = served(tmp_path / "out" / "model.gguf")
    chat = {"messages": [{"role": "user", "content": "夜"}], "temperature": 0}
    (choice,) = ask("/v1/chat/completions", chat)["choices"]
    assert (choice["message"]["content"], choice["finish_reason"]) == ("春眠", "stop")
