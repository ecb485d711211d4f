"""Tunes a model of the shape of Qwen3-0.6B by LoRA, and prints its peak memory beside the estimate.

    python benchmarks/pretrained.py --folder /tmp/pretrained
    python benchmarks/pretrained.py --folder /tmp/pretrained --layers 4 -- --precision=bf16

Made are a folder as its makers would publish it (bf16, in two parts, a byte-level BPE tokenizer), a store
with that model and some of the bundled text tokenized for it, and one training, whose options after `--` win.
The weights are drawn: time and memory do not depend on what they are.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import platform
import re
import resource
import subprocess
import sys
from pathlib import Path

import torch
import zstandard
from safetensors.torch import save_file
from tokenizers import Regex, Tokenizer, decoders, normalizers, pre_tokenizers, trainers
from tokenizers.models import BPE

from yanmo.model.decoder import Decoder, DecoderConfig
from yanmo.model.hf_export import Symbols, hf_config
from yanmo.store.file_store import FileStore
from yanmo.store.output import open_reference
from yanmo.store.pointers import read_pointer
from yanmo.train.job import parse_lines

ROOT = Path(__file__).parents[1]
SHAPE = {
    **{"vocab_size": 151_936, "hidden_size": 1024, "num_hidden_layers": 28, "num_attention_heads": 16},
    **{"num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 3072},
    **{"max_position_embeddings": 32_768, "rope_theta": 1e6, "tie_word_embeddings": True},
}
"""Of Qwen3-0.6B's config.json."""
LORA = ("--lora-rank=16", "--optimizer=adamw", "--adam-learning-rate=0.0002", "--gradient-checkpointing=true")
STEPS = ("--context=256", "--batch-rows=2", "--micro-batch=1", "--steps=3", "--ranks=1", "--threads=2")
OTHERS = ("--valid-characters=200", "--valid-points=0", "--log-every=1", "--device=cpu", "--metrics-port=-1")
SPLIT = r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"


def texts(count: int) -> list[str]:
    """The first texts of the bundled corpus."""
    with (ROOT / "corpus/small.jsonl.zst").open("rb") as file:
        lines = io.TextIOWrapper(zstandard.ZstdDecompressor().stream_reader(file), encoding="utf-8")
        return [json.loads(line)["text"] for line, _ in zip(lines, range(count), strict=False)]


def make_folder(folder: Path, layers: int) -> None:
    """A model as its makers would publish it."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = Tokenizer(BPE())
    tokenizer.normalizer = normalizers.NFC()
    level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(SPLIT), "isolated"), level])
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=8000, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(texts(2000), trainer)
    tokenizer.add_special_tokens(["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    tokenizer.save(str(folder / "tokenizer.json"))
    end = tokenizer.token_to_id("<|endoftext|>")
    config = DecoderConfig(**SHAPE | {"num_hidden_layers": layers})  # type: ignore[arg-type]
    with torch.device("meta"):
        shapes = {name: p.shape for name, p in Decoder(config).named_parameters()}
    drawn = torch.Generator().manual_seed(0)
    state = {
        name: torch.ones(shape, dtype=torch.bfloat16)
        if len(shape) < 2
        else torch.randn(shape, generator=drawn, dtype=torch.float32).mul_(0.02).bfloat16()
        for name, shape in shapes.items()
    }
    names = sorted(state)
    for number, part in enumerate((names[: len(names) // 2], names[len(names) // 2 :])):
        path = folder / f"model-{number + 1:05d}-of-00002.safetensors"
        save_file({name: state[name] for name in part}, path, metadata={"format": "pt"})
    value = hf_config(config, Symbols(bos=end, eos=end, pad=end), "bfloat16")
    (folder / "config.json").write_text(json.dumps(value), encoding="utf-8")


def yanmo(store: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a command of Yanmo's on the store; its log is shown if it fails."""
    command = [sys.executable, "-m", "yanmo.cli", *words, f"--store={store}"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(command)}\n{done.stderr}")
    return done


def size_of(folder: Path) -> int:
    """Bytes of a folder's files."""
    return sum(path.stat().st_size for path in folder.iterdir())


def prepare(folder: Path, layers: int) -> tuple[Path, str]:
    """The store with a token cache, and how it names the model; made once."""
    store, named = folder / "store", folder / "named"
    if not named.exists():
        make_folder(folder / "model", layers)
        done = yanmo(store, "model", "import", str(folder / "model"))
        peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss  # the first child is the import
        print(f"import: {size_of(folder / 'model') / 1e9:.2f} GB of files, peak {peak / 1e6:.2f} GB")
        tokenizer = re.findall(r"tokenizer/[0-9a-f]{64}", done.stderr)[0]
        rows = [
            json.dumps({"text": text, "title": f"{i}"}, ensure_ascii=False)
            for i, text in enumerate(texts(800))
        ]
        (folder / "text.jsonl").write_text("\n".join(rows), encoding="utf-8")
        yanmo(store, "curate", f"--sources={folder / 'text.jsonl'}", "--metrics-port=-1")
        yanmo(store, "balance", "--inputs=latest", "--metrics-port=-1")
        yanmo(store, "tokenize", "--inputs=latest", f"--tokenizer={tokenizer}", "--metrics-port=-1")
        named.write_text(done.stdout.strip(), encoding="utf-8")
    return store, named.read_text(encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--folder", type=Path, required=True, help="where everything is made")
    parser.add_argument("--layers", type=int, default=28, help="layers, for a smaller model")
    parser.add_argument("options", nargs="*", help="options of yanmo train, after --")
    asked = parser.parse_args()
    folder = asked.folder.absolute()
    store, model = prepare(folder, asked.layers)
    options = [*LORA, *STEPS, *OTHERS, *asked.options]
    done = yanmo(store, "train", "--inputs=latest", f"--model={model}", *options)
    reference = read_pointer(FileStore(store), "dev", "train")
    assert reference is not None
    output = open_reference(FileStore(store), reference)
    lines = parse_lines(output.path("metrics.jsonl").read_bytes())
    for said in re.findall(r"(?:LoRA of rank|memory by estimate).*", done.stderr):
        print(said)
    for line in lines:
        if "loss" in line:
            rate = line["tokens_per_second"]
            print(f"step {line['step']}: loss {line['loss']:.4f}, {rate:.1f} tokens/s")
    peak = max(line.get("memory_peak_bytes", 0) for line in lines)
    print(f"training: peak {peak / 1e9:.2f} GB; {platform.machine()}, {os.cpu_count()} cores")


if __name__ == "__main__":
    main()
