"""A pretrained model as its makers publish it, tokenized with its own tokenizer and trained on."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from yanmo.formats.token_cache import SpecialIds
from yanmo.store.commit import find_output
from yanmo.store.file_store import FileStore
from yanmo.store.output import Output, open_reference
from yanmo.store.pointers import read_pointer

transformers = pytest.importorskip("transformers")
POOL = "春眠不觉晓处闻啼鸟夜来风雨声花落知多少床前明月光疑是地上霜举头望低思故乡白日依山尽黄河入海流"


def verse(seed: int) -> str:
    """A text of drawn characters that no other contains."""
    drawn = random.Random(seed)
    lines = ("".join(drawn.choices(POOL, k=7)) for _ in range(4))
    return f"第{seed}首。{'，'.join(lines)}。{chr(0x4E00 + seed)}"


TEXTS = [verse(i) for i in range(120)]
SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
"""Of Qwen2's tokenizer.json."""
TEMPLATE = (
    "{% for m in messages %}"
    "{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>' + '\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


@pytest.fixture
def qwen(tmp_path) -> Path:
    """Of the type and files of Qwen2.5-0.5B-Instruct: tied, bf16, in parts, with rows of no token."""
    place = tmp_path / "qwen"
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    split = pre_tokenizers.Split(Regex(SPLIT), "isolated")
    level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, level])
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=420, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(TEXTS, trainer)
    tokenizer.add_special_tokens(["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    end, turn = (tokenizer.token_to_id(name) for name in ("<|endoftext|>", "<|im_end|>"))
    torch.manual_seed(0)
    config = transformers.Qwen2Config(
        vocab_size=tokenizer.get_vocab_size() + 13,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        intermediate_size=48,
        max_position_embeddings=64,
        rope_parameters={"rope_type": "default", "rope_theta": 1e6},
        tie_word_embeddings=True,
        bos_token_id=end,
        eos_token_id=turn,
    )
    model = transformers.Qwen2ForCausalLM(config).to(torch.bfloat16)
    model.save_pretrained(place, max_shard_size="20KB")
    tokenizer.save(str(place / "tokenizer.json"))
    settings = {"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>", "tokenizer_class": "Qwen2Tokenizer"}
    (place / "tokenizer_config.json").write_text(json.dumps(settings))
    (place / "chat_template.jinja").write_text(TEMPLATE)
    return place


def imported(store: Path, place: str | Path, capsys) -> Output:
    from yanmo.tools.command_group import main
    from yanmo.tools.model.command import TOOL

    assert main(TOOL, ["import", str(place), "--store", str(store)]) == 0
    answer = capsys.readouterr().out.strip()
    output = find_output(FileStore(store), "train", answer.removeprefix("train/"))
    assert output is not None
    return output


def test_bf16_stays_bf16_to_the_bit_in_one_file_as_the_library_writes_it(store, qwen, capsys, tmp_path):
    from safetensors.torch import save_file

    output = imported(store, qwen, capsys)
    state = {name: value for part in qwen.glob("*.safetensors") for name, value in load_file(part).items()}
    state.pop("lm_head.weight", None)
    save_file(state, tmp_path / "as-the-library.safetensors", metadata={"format": "pt"})
    written = output.path("model.safetensors")
    assert written.read_bytes() == (tmp_path / "as-the-library.safetensors").read_bytes()
    folder = output.path("config.json").parent
    again = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype="auto")
    assert again.dtype == torch.bfloat16 and type(again).__name__ == "Qwen2ForCausalLM"
    end = Tokenizer.from_file(str(qwen / "tokenizer.json")).token_to_id("<|endoftext|>")
    assert again.config.eos_token_id == end, "what text is tokenized with, not what ends a turn"
    assert output.manifest.counts["parameters"] == sum(value.numel() for value in state.values())


def test_its_tokenizer_comes_with_it_and_nothing_is_added(store, qwen, capsys):
    output = imported(store, qwen, capsys)
    tokenizer = output.part("tokenizer")
    for made in (output, tokenizer):
        assert made.path("tokenizer.json").read_bytes() == (qwen / "tokenizer.json").read_bytes()
    ids = {name: Tokenizer.from_file(str(qwen / "tokenizer.json")).token_to_id(name) for name in MARKS}
    special = SpecialIds.read(tokenizer.path("genres.json"))
    assert (special.bos, special.eos, special.pad) == (ids["<|endoftext|>"],) * 3
    assert (special.im_start, special.im_end) == (ids["<|im_start|>"], ids["<|im_end|>"])
    folder = tokenizer.path("tokenizer_config.json").parent
    tokenizer.path("special_tokens_map.json")
    chat = [{"role": "user", "content": "春"}]
    found = transformers.AutoTokenizer.from_pretrained(folder).apply_chat_template(chat, tokenize=False)
    assert found == "<|im_start|>user\n春<|im_end|>\n"


MARKS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")


@pytest.mark.long
def test_a_template_that_is_not_ours_leaves_texts_and_refuses_chats(store, qwen, capsys, caplog, tmp_path):
    (qwen / "chat_template.jinja").write_text(
        "{% for m in messages %}[{{ m.role }}] {{ m.content }}{% endfor %}"
    )
    tokenizer = imported(store, qwen, capsys).part("tokenizer")
    assert "chats are refused" in caplog.text
    special = SpecialIds.read(tokenizer.path("genres.json"))
    assert (special.im_start, special.im_end) == (-1, -1)
    text_and_chats(store, tmp_path)
    done = run_stage(store, "tokenize", f"--tokenizer=tokenizer/{tokenizer.manifest.key}", "--workers=1")
    assert done.returncode == 65 and "chat template that writes something else" in done.stderr


def run_stage(store: Path, name: str, *flags: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", f"yanmo.{name}", f"--store={store}", "--inputs=latest", *flags]
    return subprocess.run([*command, "--metrics-port=-1"], capture_output=True, text=True)


def stage(store: Path, name: str, *flags: str) -> None:
    done = run_stage(store, name, *flags)
    assert done.returncode == 0, done.stderr


def text_and_chats(store: Path, folder: Path) -> None:
    """Curated and balanced in the store."""
    source = folder / "text.jsonl"
    rows = [{"text": text, "title": f"{i}", "genre": "诗"} for i, text in enumerate(TEXTS)]
    rows += [
        {"messages": [{"role": "user", "content": f"第{i}首？"}, {"role": "assistant", "content": verse(i)}]}
        for i in range(200, 320)
    ]
    source.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
    stage(store, "curate", f"--sources={source}", "--near-duplicate-similarity=0", "--filter-sets=chat=none")
    stage(store, "balance")


@pytest.mark.road
def test_from_text_and_chats_to_a_tuned_model(store, qwen, capsys, tmp_path):
    base = imported(store, qwen, capsys)
    text_and_chats(store, tmp_path)
    stage(store, "tokenize", f"--tokenizer=tokenizer/{base.part('tokenizer').manifest.key}", "--workers=1")
    sizes = ("--context=48", "--batch-rows=4", "--steps=3", "--ranks=1", "--optimizer=adamw")
    stage(store, "train", f"--model=train/{base.manifest.key}", *sizes, "--adam-learning-rate=0.001")
    reference = read_pointer(FileStore(store), "dev", "train")
    assert reference is not None
    tuned = open_reference(FileStore(store), reference)
    tuned.path("model.safetensors")
    folder = tuned.path("config.json").parent
    theirs, report = transformers.AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True)
    assert type(theirs).__name__ == "Qwen2ForCausalLM"
    assert not report["missing_keys"] and not report["unexpected_keys"]
    assert theirs.config.vocab_size == json.loads((qwen / "config.json").read_text())["vocab_size"]
    for model in (base, tuned):  # bits of both, as the gate of a tuning compares them
        measured = ("--samples=1", "--sample-tokens=4", "--bootstrap-draws=100", "--baseline-characters=1000")
        stage(store, "evaluate", f"--model=train/{model.manifest.key}", *measured)
    card = (tuned.path("README.md")).read_text(encoding="utf-8")
    assert "A Qwen2-type decoder" in card and f"`train/{base.manifest.key}`, whose own licence" in card
    assert "A text begins with `<|endoftext|>` and ends with `<|endoftext|>`." in card
