"""The contestants of `make bench ONLY=training`: same shape, weights, data, batch, precision, in one process.

deepspeed      ours: DeepSpeed, ZeRO-1
torch          ours: the plain torch backend
bare           our decoder in a bare torch loop: forward, backward, clip, torch.optim.AdamW(fused=True)
nanogpt        nanoGPT-like code: learned positions, fused qkv, GELU 4x, F.cross_entropy over all logits
hf-deepspeed   transformers' Trainer with DeepSpeed ZeRO-1 on Qwen3ForCausalLM; needs accelerate
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

for _name, _value in {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1"}.items():
    os.environ.setdefault(_name, _value)
os.environ.setdefault("MASTER_PORT", str(20000 + os.getpid() % 20000))

import numpy as np  # noqa: E402
import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from bench.rounds import cpu_seconds  # noqa: E402
from torch import Tensor, nn  # noqa: E402
from train_nanogpt import NanoGPT  # noqa: E402
from train_trainer import hugging_face  # noqa: E402

from yanmo.model.attention import document_bounds  # noqa: E402
from yanmo.model.decoder import Decoder  # noqa: E402
from yanmo.options.command_line import load  # noqa: E402
from yanmo.train.backends.accelerator import prepare  # noqa: E402
from yanmo.train.backends.loss_module import LossModule  # noqa: E402
from yanmo.train.backends.open_engine import open_engine  # noqa: E402
from yanmo.train.config import TrainConfig  # noqa: E402
from yanmo.train.data import Batch  # noqa: E402
from yanmo.train.models.first_decoder import decoder_config  # noqa: E402

Step = Callable[[int], Any]
_RATE = 1e-3


class Bench:
    """The task that all contestants get."""

    rate = _RATE

    def __init__(self, size: str, rows: int, others: Sequence[str] = (), vocabulary: int = 8192) -> None:
        """Args:
        size: of `yanmo train`.
        rows: of a step.
        others: more options of `yanmo train`, for ours and the bare loop.
        """
        self.rows, self.vocabulary = rows, vocabulary
        flags = [f"--size={size}", f"--batch-rows={rows}", "--ranks=1", "--packing=one", "--device=cpu"]
        flags += ["--optimizer=adamw", "--precision=fp32", "--compile=false", f"--adam-learning-rate={_RATE}"]
        flags += [f"--head-learning-rate={_RATE}", f"--norm-learning-rate={_RATE}", *others]
        self.options = load(TrainConfig, flags, "benchmark")
        self.shape = decoder_config(self.options, vocabulary)
        torch.manual_seed(0)
        first = Decoder(self.shape)
        first.initialize(torch.Generator().manual_seed(0), 0.02, "depth")
        self.weights = first.state_dict()

    @property
    def tokens(self) -> int:
        """Predicted in a step."""
        return self.rows * self.options.context

    def ids(self, step: int) -> np.ndarray:
        """Rows of one more position than the context, by step."""
        rng = np.random.default_rng(step)
        return rng.integers(0, self.vocabulary, (self.rows, self.options.context + 1))

    def row(self, number: int) -> np.ndarray:
        """One row alone, for a contestant that asks for rows, in an order of its own."""
        rng = np.random.default_rng(number)
        return rng.integers(0, self.vocabulary, self.options.context + 1)

    def decoder(self) -> Decoder:
        """Ours, with the common first weights, as the options ask."""
        decoder = Decoder(self.shape)
        decoder.load_state_dict(self.weights)
        prepare(decoder, self.options, "cpu")
        return decoder

    def build(self) -> dict[str, Step]:
        """The contestants."""
        with contextlib.redirect_stdout(sys.stderr):
            return {
                "deepspeed": self.ours("deepspeed"),
                "torch": self.ours("torch"),
                "bare": self.bare(),
                "nanogpt": self.nanogpt(),
                "hf-deepspeed": hugging_face(self),
            }

    def ours(self, backend: str) -> Step:
        engine = open_engine(self.decoder(), dataclasses.replace(self.options, backend=backend), "cpu")
        segments = np.ones((self.rows, self.options.context), np.int64)

        def step(number: int) -> None:
            ids = self.ids(number)
            rows = Batch(ids[:, :-1], ids[:, 1:], segments)
            engine.accumulate(rows, rows.num_targets)
            engine.step()

        return step

    def bare(self) -> Step:
        decoder = self.decoder()
        return self._stepped(decoder, self._loss(decoder))

    def _stepped(self, model: nn.Module, loss_of: Callable[[Tensor], Tensor]) -> Step:
        """A step as people write it: backward, clip, AdamW."""
        optimizer = torch.optim.AdamW(
            model.parameters(), lr=_RATE, betas=(0.9, 0.95), weight_decay=0.0, fused=True
        )

        def step(number: int) -> None:
            loss_of(torch.from_numpy(self.ids(number))).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)

        return step

    def nanogpt(self) -> Step:
        c = self.shape
        model = NanoGPT(
            c.vocab_size, self.options.context, c.num_hidden_layers, c.hidden_size, c.num_attention_heads
        )

        def loss(ids: Tensor) -> Tensor:
            return F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())

        return self._stepped(model, loss)

    def _loss(self, decoder: Decoder) -> Callable[[Tensor], Tensor]:
        """The mean loss of rows; what does not change from step to step is made once."""
        segments = np.ones((self.rows, self.options.context), np.int64)
        fixed = segments, np.arange(self.tokens), document_bounds(segments)
        of_rows, at, bounds = (torch.from_numpy(x) for x in fixed)
        module = LossModule(decoder)

        def loss(ids: Tensor) -> Tensor:
            targets = ids[:, 1:].contiguous()
            return module(ids[:, :-1], of_rows, targets, 1.0 / self.tokens, at, bounds)

        return loss

    def speed(self, step: Step, steps: int) -> Callable[[], float]:
        """Tokens a CPU second of so many steps more."""
        numbers = itertools.count()

        def work() -> None:
            with contextlib.redirect_stdout(sys.stderr):
                for _ in range(steps):
                    step(next(numbers))

        return lambda: steps * self.tokens / cpu_seconds(work)
