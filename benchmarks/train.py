"""Tokens per second of the trainer beside others: same shape, weights, data, batch and precision, in one run.

    python benchmarks/train.py --device cuda --size medium --rows 32 --steps 20 --only torch,torchtitan

    deepspeed      ours: DeepSpeed, ZeRO-1
    torch          ours: the plain torch backend
    bare           our decoder in a bare torch loop: forward, backward, clip, torch.optim.AdamW(fused=True)
    hf-deepspeed   transformers' Trainer with DeepSpeed ZeRO-1 on Qwen3ForCausalLM; needs accelerate
    torchtitan     torchtitan's Qwen3 on one GPU (train_engines.py); by --only

`make bench ONLY=training` is this on a CPU, with intervals; here are GPUs, and peers that need one. Every
contestant is built once, warms up and takes turns: `--repeats` blocks of `--steps` steps each. The table
gives medians and the range, and MFU by each model's own FLOPs (peaks and formula:
components/yanmo/train/metrics/utilization.py). Any other option is one of `yanmo train`, for ours and `bare`:
--attention=flash, --gradient-checkpointing.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import io
import itertools
import os
import statistics
import sys
from collections.abc import Callable, Sequence
from typing import Any

for _name, _value in {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1"}.items():
    os.environ.setdefault(_name, _value)
os.environ.setdefault("MASTER_PORT", str(20000 + os.getpid() % 20000))
os.environ.setdefault("PYTORCH_ALLOC_CONF", "expandable_segments:True")

import numpy as np  # noqa: E402
import torch  # noqa: E402
from bench.declared import Group  # noqa: E402
from bench.rounds import cpu_seconds, measured, seconds  # noqa: E402
from torch import Tensor, nn  # noqa: E402
from train_engines import torchtitan  # noqa: E402
from train_trainer import hugging_face  # noqa: E402

from yanmo.model.attention import document_bounds  # noqa: E402
from yanmo.model.decoder import Decoder  # noqa: E402
from yanmo.options.command_line import load  # noqa: E402
from yanmo.train.backends.accelerator import prepare  # noqa: E402
from yanmo.train.backends.loss_module import LossModule  # noqa: E402
from yanmo.train.backends.plain import open_engine  # noqa: E402
from yanmo.train.backends.zero import import_deepspeed  # noqa: E402
from yanmo.train.config import TrainConfig  # noqa: E402
from yanmo.train.data import Batch  # noqa: E402
from yanmo.train.metrics.utilization import flops_per_token, peak_flops  # noqa: E402
from yanmo.train.models.first_decoder import decoder_config  # noqa: E402

Step = Callable[[int], Any]
_RATE = 1e-3
_BY_NAME = ("torchtitan",)
"""Contestants that --only has to name."""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--size", default="tiny", help="of `yanmo train`")
    parser.add_argument("--context", type=int, default=0, help="positions of a row; default: the size's")
    parser.add_argument("--rows", type=int, default=16, help="rows of a step")
    parser.add_argument("--vocabulary", type=int, default=8192)
    parser.add_argument("--precision", default="", help="fp32 or bf16; default: fp32 on a CPU, bf16 on CUDA")
    parser.add_argument("--optimizer", default="adamw", choices=("adamw", "muon"), help="of ours")
    parser.add_argument("--compile", action="store_true", help="compile the layers of ours and of `bare`")
    parser.add_argument("--steps", type=int, default=4, help="of a block")
    parser.add_argument("--repeats", type=int, default=7, help="blocks of each")
    parser.add_argument("--threads", type=int, default=1, help="CPU threads")
    parser.add_argument("--only", default="", help="contestants, with commas")
    asked, others = parser.parse_known_args()
    import_deepspeed(asked.device, asked.compile)
    # Unset, accelerate takes as many threads as there are cores, for all contestants of this process: their
    # waiting for each other was three quarters of the CPU time on two busy cores.
    os.environ["OMP_NUM_THREADS"] = str(asked.threads)
    torch.set_num_threads(asked.threads)
    bench = Bench(asked, others)
    built = bench.build([x for x in asked.only.split(",") if x])
    o = bench.options
    title = f"{o.size}, {asked.rows} rows of {o.context}, {o.precision}, compile={o.compile}"
    contestants = {name: bench.speed(step, asked.steps) for name, step in built.items()}
    found = measured(Group((title, title), contestants), asked.repeats)["figures"]
    unit = "tokens/CPU s" if asked.device == "cpu" else "tokens/s"
    print(f"{title}\n\n| | {unit}, median | range | MFU |\n|---|---|---|---|")
    for name, figures in found.items():
        middle = statistics.median(figures)
        share = f"{100 * bench.mfu(middle):.1f} %" if asked.device == "cuda" else ""
        print(f"| {name} | {middle:.0f} | {min(figures):.0f} to {max(figures):.0f} | {share} |")


class Bench:
    """The task that all contestants get."""

    rate = _RATE

    def __init__(self, asked: argparse.Namespace, others: Sequence[str] = ()) -> None:
        self.asked, self.device = asked, asked.device
        precision = asked.precision or ("bf16" if asked.device == "cuda" else "fp32")
        flags = [f"--size={asked.size}", f"--batch-rows={asked.rows}", "--ranks=1", "--packing=one"]
        flags += [f"--device={asked.device}", f"--optimizer={asked.optimizer}", f"--precision={precision}"]
        flags += [f"--context={asked.context}"] if asked.context else []
        flags += [f"--adam-learning-rate={_RATE}", f"--head-learning-rate={_RATE}"]
        flags += [f"--norm-learning-rate={_RATE}", f"--compile={asked.compile}", *others]
        self.options = load(TrainConfig, flags, "benchmark")
        self.dtype = torch.bfloat16 if precision == "bf16" else torch.float32
        self.shape = decoder_config(self.options, asked.vocabulary)
        torch.manual_seed(0)
        first = Decoder(self.shape)
        first.initialize(torch.Generator().manual_seed(0), 0.02, "depth")
        self.weights = first.state_dict()
        """FLOPs per token of a contestant whose architecture is another one."""

    @property
    def tokens(self) -> int:
        """Predicted in a step."""
        return self.asked.rows * self.options.context

    def ids(self, step: int) -> np.ndarray:
        """Rows of one more position than the context, by step."""
        rng = np.random.default_rng(step)
        return rng.integers(0, self.asked.vocabulary, (self.asked.rows, self.options.context + 1))

    def row(self, number: int) -> np.ndarray:
        """One row alone, for a contestant that asks for rows, in an order of its own."""
        rng = np.random.default_rng(number)
        return rng.integers(0, self.asked.vocabulary, self.options.context + 1)

    def decoder(self) -> Decoder:
        """Ours, with the common first weights, as the options ask."""
        decoder = Decoder(self.shape)
        decoder.load_state_dict(self.weights)
        prepare(decoder, self.options, self.device)
        return decoder

    def build(self, only: list[str]) -> dict[str, Step]:
        """The contestants; one whose package is missing is left out, by name."""
        makers = {
            "deepspeed": lambda: self.ours("deepspeed"),
            "torch": lambda: self.ours("torch"),
            "bare": self.bare,
            "torchtitan": lambda: torchtitan(self),
            "hf-deepspeed": lambda: hugging_face(self),
        }
        built = {}
        for name in only or [name for name in makers if name not in _BY_NAME]:
            with contextlib.redirect_stdout(io.StringIO()):
                try:
                    built[name] = makers[name]()
                except ImportError as error:
                    print(f"{name}: left out, {error}", file=sys.stderr)
        return built

    def ours(self, backend: str) -> Step:
        engine = open_engine(self.decoder(), dataclasses.replace(self.options, backend=backend), self.device)
        segments = np.ones((self.asked.rows, self.options.context), np.int64)

        def step(number: int) -> None:
            ids = self.ids(number)
            rows = Batch(ids[:, :-1], ids[:, 1:], segments)
            engine.accumulate(rows, rows.num_targets)
            engine.step()

        return step

    def bare(self) -> Step:
        decoder = self.decoder().to(self.device, self.dtype)
        optimizer = torch.optim.AdamW(
            decoder.parameters(), lr=_RATE, betas=(0.9, 0.95), weight_decay=0.0, fused=True
        )
        loss = self._loss(decoder)

        def step(number: int) -> None:
            loss(self.on_device(number)).backward()
            nn.utils.clip_grad_norm_(decoder.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)

        return step

    def on_device(self, step: int) -> Tensor:
        """The rows of a step; as nanoGPT does it, nobody waits for their copy."""
        ids = torch.from_numpy(self.ids(step))
        return ids.pin_memory().to(self.device, non_blocking=True) if self.device == "cuda" else ids

    def _loss(self, decoder: Decoder) -> Callable[[Tensor], Tensor]:
        """The mean loss of rows; what does not change from step to step is on the device already."""
        segments = np.ones((self.asked.rows, self.options.context), np.int64)
        fixed = segments, np.arange(self.tokens), document_bounds(segments)
        of_rows, at, bounds = (torch.from_numpy(x).to(self.device) for x in fixed)
        module = LossModule(decoder)

        def loss(ids: Tensor) -> Tensor:
            targets = ids[:, 1:].contiguous()
            return module(ids[:, :-1], of_rows, targets, 1.0 / self.tokens, at, bounds)

        return loss

    def speed(self, step: Step, steps: int) -> Callable[[], float]:
        """Tokens a second of so many steps more: CPU seconds on a CPU, which a busy machine changes less."""
        numbers = itertools.count()

        def work() -> None:
            with contextlib.redirect_stdout(sys.stderr):
                for _ in range(steps):
                    step(next(numbers))
            if self.device == "cuda":
                torch.cuda.synchronize()

        return lambda: steps * self.tokens / (seconds if self.device == "cuda" else cpu_seconds)(work)

    def mfu(self, tokens_per_second: float) -> float:
        """Model FLOPs utilization; 0 on a card whose peak is not known."""
        peak = peak_flops(torch.cuda.get_device_name())
        flops = flops_per_token(self.shape, self.options.context)
        return tokens_per_second * flops / peak if peak else 0.0


if __name__ == "__main__":
    main()
