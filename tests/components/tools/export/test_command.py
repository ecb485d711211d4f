"""`yanmo export`: other programs load the folder, nothing is there by half."""

from __future__ import annotations

import hashlib
import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch
from processes import no_file_above
from tokenizers import Tokenizer, models

from yanmo.common.errors import ExitCode
from yanmo.formats.chat_tokens import Turn, prompt_ids
from yanmo.formats.round_trip import open_tokenizer
from yanmo.model.hf_export import load
from yanmo.tools.export.command import main

if TYPE_CHECKING:
    from conftest import Lab


def export(lab: Lab, *argv: object) -> int:
    return main([*map(str, argv), "--store", lab.uri])


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def assert_whole(folder: Path) -> None:
    """Every file is there as the record says, and nothing else."""
    record = json.loads((folder / "yanmo.json").read_text(encoding="utf-8"))
    assert names(folder) == sorted([*record["files"], "yanmo.json"])
    for name, entry in record["files"].items():
        data = (folder / name).read_bytes()
        assert (len(data), hashlib.sha256(data).hexdigest()) == (entry["bytes"], entry["sha256"])


@pytest.mark.parametrize(("dtype", "close"), [("fp32", 1e-4), ("bf16", 0.1)])
def test_transformers_loads_it_and_gives_the_same_logits(lab: Lab, tmp_path: Path, dtype: str, close: float):
    transformers = pytest.importorskip("transformers")
    out = tmp_path / "out"
    assert export(lab, "main", out, "--dtype", dtype) == 0
    assert_whole(out)
    theirs, report = transformers.AutoModelForCausalLM.from_pretrained(out, output_loading_info=True)
    assert not any(report[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    assert theirs.dtype == {"fp32": torch.float32, "bf16": torch.bfloat16}[dtype]
    ids = torch.randint(0, load(out).model.config.vocab_size, (2, 30))
    with torch.no_grad():
        wanted, found = load(lab.folder).model(ids), theirs.eval()(ids).logits.float()
    assert (wanted - found).abs().max() < close * wanted.abs().max()


def test_transformers_reads_texts_and_chats_as_the_training_did(lab: Lab, tmp_path: Path):
    transformers = pytest.importorskip("transformers")
    out = tmp_path / "out"
    assert export(lab, "main", out) == 0
    theirs = transformers.AutoTokenizer.from_pretrained(out)
    ours = open_tokenizer(lab.folder / "tokenizer.json")
    text = "春眠 不觉晓，\n𠀀abc"
    assert theirs(text).input_ids == [0, *ours.encode(text, add_special_tokens=False).ids]
    messages = [{"role": "system", "content": "夜"}, {"role": "user", "content": "闻啼鸟"}]
    found = theirs.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
    turns = [Turn(each["role"], each["content"]) for each in messages]
    assert found == prompt_ids(ours, turns, 0)
    ends = transformers.GenerationConfig.from_pretrained(out).eos_token_id
    assert ends == [theirs.convert_tokens_to_ids(mark) for mark in ("<|eos|>", "<|im_end|>")]
    assert theirs.model_max_length == 64 and theirs.decode(theirs(text).input_ids[1:]) == text


@pytest.mark.parametrize("tied", [False, True], ids=["untied", "tied"])
@pytest.mark.parametrize("kind", ["Qwen2", "Llama"])
def test_a_folder_of_another_kind_stays_that_model(lab: Lab, tmp_path: Path, kind: str, tied: bool):
    """With biases or without norms, in several files, with a tokenizer that `yanmo tokenize` did not make."""
    transformers = pytest.importorskip("transformers")
    shape = {"vocab_size": 90, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    shape |= {"num_key_value_heads": 1, "intermediate_size": 48, "max_position_embeddings": 64}
    config = getattr(transformers, f"{kind}Config")(**shape, tie_word_embeddings=tied)
    before = getattr(transformers, f"{kind}ForCausalLM")(config).eval()
    for parameter in before.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    before.save_pretrained(tmp_path / "model", max_shard_size="10KB")
    tokenizer = Tokenizer(models.BPE({"春": 0, "眠": 1, "春眠": 2}, [("春", "眠")]))
    tokenizer.save(str(tmp_path / "model" / "tokenizer.json"))
    assert export(lab, tmp_path / "model", tmp_path / "out") == 0
    after = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    assert type(after) is type(before)
    ids = torch.randint(0, 90, (2, 30))
    with torch.no_grad():
        assert torch.equal(before(ids).logits, after(ids).logits)
    path = "tokenizer.json"
    assert (tmp_path / "out" / path).read_bytes() == (tmp_path / "model" / path).read_bytes()
    assert "tokenizer.model" not in names(tmp_path / "out")


def test_a_model_that_was_exported_writes_as_before_and_is_exported_alike(lab: Lab, tmp_path: Path, capsys):
    from yanmo.tools.generate.command import main as generate

    out, again = tmp_path / "out", tmp_path / "again"
    assert export(lab, "main", out) == 0
    capsys.readouterr()
    how = ("--temperature", "0", "--max-tokens", "12", "--store", lab.uri)
    texts = []
    for model in ("main", out):
        assert generate(["春眠", "--model", str(model), *how]) == 0
        texts.append(capsys.readouterr().out)
    assert texts[0] == texts[1]
    assert export(lab, out, again) == 0
    for name in ("model.safetensors", "tokenizer.json", "config.json"):
        assert (out / name).read_bytes() == (again / name).read_bytes()


def test_a_model_that_is_not_there_is_named_as_it_was_given(lab: Lab, tmp_path: Path, capsys):
    assert export(lab, "nosuch", tmp_path / "out") == ExitCode.DATA
    said = capsys.readouterr().err
    assert "MODEL 'nosuch': " in said and "--model" not in said


def test_no_code_and_no_path_of_a_folder_is_handed_on(lab: Lab, tmp_path: Path):
    """A config.json may ask its reader to run code, and may name a folder of whoever made it."""
    out = tmp_path / "out"
    assert export(lab, "main", tmp_path / "model") == 0
    path = tmp_path / "model" / "config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    hostile = {"auto_map": {"AutoModelForCausalLM": "evil.Evil"}, "_name_or_path": "/home/somebody"}
    path.write_text(json.dumps(config | hostile), encoding="utf-8")
    (path.parent / "evil.py").write_text("raise SystemExit", encoding="utf-8")
    assert export(lab, path.parent, out) == 0
    assert json.loads((out / "config.json").read_text(encoding="utf-8")) == config
    assert "evil.py" not in names(out)


def test_a_folder_is_replaced_only_when_asked_and_only_if_an_export_made_it(lab: Lab, tmp_path: Path, capsys):
    out, mine = tmp_path / "out", tmp_path / "mine"
    mine.mkdir()
    (mine / "novel.txt").write_text("years of work", encoding="utf-8")
    assert export(lab, "main", mine, "--overwrite") == ExitCode.USAGE
    assert "novel.txt" in capsys.readouterr().err and names(mine) == ["novel.txt"]
    assert export(lab, "main", out) == 0
    before = (out / "model.safetensors").read_bytes()
    assert export(lab, "main", out, "--dtype", "bf16") == ExitCode.USAGE
    assert "--overwrite" in capsys.readouterr().err and (out / "model.safetensors").read_bytes() == before
    assert export(lab, "main", out, "--dtype", "bf16", "--overwrite") == 0
    assert_whole(out)
    assert len((out / "model.safetensors").read_bytes()) < len(before)
    (out / "notes.txt").write_text("mine", encoding="utf-8")
    assert export(lab, "main", out, "--overwrite") == ExitCode.USAGE
    assert (out / "notes.txt").exists() and names(tmp_path) == ["mine", "out", "store"]


def test_a_full_disk_leaves_nothing_and_says_so(lab: Lab, tmp_path: Path, capsys):
    with no_file_above(20_000):
        assert export(lab, "main", tmp_path / "out") == ExitCode.ENVIRONMENT
    assert "nothing half-written is visible" in capsys.readouterr().err and names(tmp_path) == ["store"]
    assert export(lab, "main", tmp_path / "out") == 0


@pytest.mark.long
def test_after_kill_nine_nothing_is_there_and_the_next_export_clears_up(lab: Lab, tmp_path: Path):
    out = tmp_path / "out"
    command = [sys.executable, "-m", "yanmo.tools.export.command", "main", str(out), "--store", lab.uri]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    while process.poll() is None and not list(tmp_path.glob(".out.yanmo-export")):
        time.sleep(0.001)
    process.send_signal(signal.SIGKILL)
    process.wait()
    if out.exists():  # it was faster
        assert_whole(out)
    assert export(lab, "main", out, *(["--overwrite"] if out.exists() else [])) == 0
    assert_whole(out)
    assert names(tmp_path) == ["out", "store"]


def test_an_export_killed_after_it_replaced_another_leaves_nothing_in_the_way(lab: Lab, tmp_path: Path):
    out, beside = tmp_path / "out", tmp_path / ".out.yanmo-export"
    assert export(lab, "main", out) == 0
    shutil.copytree(out, beside / "former")
    assert export(lab, "main", out, "--overwrite") == 0
    assert_whole(out)
    assert names(tmp_path) == ["out", "store"]


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["main", "s3://a/b"], "expected a folder to make"),
        (["main", ""], "FOLDER is empty"),
        (["tokenize/latest-of-nothing", "out"], "yanmo store ls"),
        (["nobody", "out"], "no channel of that name with one"),
    ],
)
def test_what_is_wrong_is_named(lab: Lab, tmp_path: Path, monkeypatch, capsys, argv: list[str], message: str):
    monkeypatch.chdir(tmp_path)
    assert export(lab, *argv) in (ExitCode.USAGE, ExitCode.DATA)
    assert message in capsys.readouterr().err and names(tmp_path) == ["store"]


def test_weights_that_were_damaged_are_refused(lab: Lab, tmp_path: Path, capsys):
    model = tmp_path / "model"
    assert export(lab, "main", model) == 0
    path = model / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-4] + b"\xff\xff\xff\x7f")
    assert export(lab, model, tmp_path / "out") == ExitCode.DATA
    assert "no finite numbers" in capsys.readouterr().err and not (tmp_path / "out").exists()


def test_the_card_that_the_training_wrote_goes_along(lab: Lab, tmp_path: Path):
    written = (lab.folder / "README.md").read_bytes()
    for out in ("folder", "gguf"):
        assert export(lab, "main", tmp_path / out, *(["--for", "llama.cpp"] if out == "gguf" else [])) == 0
        assert (tmp_path / out / "README.md").read_bytes() == written
    (tmp_path / "folder" / "README.md").unlink()
    assert export(lab, tmp_path / "folder", tmp_path / "again") == 0
    assert "README.md" not in names(tmp_path / "again")
