"""What the ranks of `test_two_ranks.py` do, all cases in one process group: `two_ranks.py STATE.pt OUT`.

STATE.pt holds {(parameter, kind): values} of three steps made by one rank. Every engine trains from the first
weights, and hands its state on to itself and to the next one; what they found goes to OUT.<rank>.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from yanmo.model.decoder import Decoder, DecoderConfig
from yanmo.train.backends.plain import open_engine
from yanmo.train.config import TrainConfig
from yanmo.train.data import Batch
from yanmo.train.supervision.ranks import LOOPBACK_INTERFACE, environments, meeting_file

SHAPE = DecoderConfig(
    vocab_size=61,  # odd: partitions end inside of matrices
    hidden_size=32,
    num_hidden_layers=2,
    num_attention_heads=2,
    num_key_value_heads=1,
    head_dim=16,
    intermediate_size=48,
    max_position_embeddings=16,
)
CASES: dict[str, dict[str, Any]] = {
    "zero-1": {"zero_stage": 1},
    "zero-2": {"zero_stage": 2},
    "zero-3": {"zero_stage": 3},
    "torch": {"backend": "torch"},
    "zero-1-bf16": {"zero_stage": 1, "precision": "bf16"},
    "zero-2-bf16": {"zero_stage": 2, "precision": "bf16"},
    "zero-3-bf16": {"zero_stage": 3, "precision": "bf16"},
    "torch-bf16": {"backend": "torch", "precision": "bf16"},
}
FP32 = [name for name, case in CASES.items() if "precision" not in case]
ROWS, HANDED_OVER, STEPS = 4, 3, 6
"""Rows of a step, the step after which a state is handed over, and steps in all."""


def options(case: str, ranks: int) -> TrainConfig:
    values = {"batch_rows": ROWS, "ranks": ranks, "context": 16, "device": "cpu", "clip": 0.1}
    return TrainConfig(**{**values, "micro_batch": 1, **CASES[case]})


def decoder(precision: str = "fp32") -> Decoder:
    torch.manual_seed(0)
    made = Decoder(SHAPE)
    for parameter in made.parameters():
        torch.nn.init.normal_(parameter, std=0.2)
    return made.to(torch.bfloat16).float() if precision == "bf16" else made


def batch(step: int) -> Batch:
    """Rows that predict unequal numbers of tokens, so that a mean over ranks would be wrong."""
    ids = np.random.default_rng(step).integers(0, 61, (ROWS, 17))
    targets = ids[:, 1:].copy()
    targets[-1, :11] = -1
    return Batch(ids[:, :-1], targets, np.ones((ROWS, 16), np.int64))


def make(case: str, ranks: int) -> Any:
    asked = options(case, ranks)
    return open_engine(decoder(asked.precision), asked, "cpu")


def train(engine: Any, steps: range) -> list[float]:
    """The whole batch's summed loss of each step; every rank forwards its rows one by one."""
    found = []
    for step in steps:
        rows, share = batch(step), ROWS // engine.world_size
        mine = range(engine.rank * share, (engine.rank + 1) * share)
        loss = sum(engine.accumulate(rows.rows(i, i + 1), rows.num_targets) for i in mine)
        assert engine.step()
        if engine.world_size > 1:
            dist.all_reduce(loss)
        found.append(float(loss))
    return found


def parts(engine: Any) -> list[tuple[str, str, int, torch.Tensor]]:
    """All ranks' parts of the state."""
    own = [(p.name, p.kind, p.start, p.values.clone()) for p in engine.parts()]
    if engine.world_size == 1:
        return own
    everyone: list[Any] = [None] * engine.world_size
    dist.all_gather_object(everyone, own)
    return [part for theirs in everyone for part in theirs]


def joined(found: list[tuple[str, str, int, torch.Tensor]]) -> dict[tuple[str, str], torch.Tensor]:
    """Parts put together; each element must be there exactly once."""
    state: dict[tuple[str, str], torch.Tensor] = {}
    for name, kind, start, values in sorted(found, key=lambda p: p[:3]):
        before = state.get((name, kind), torch.zeros(0))
        assert start == len(before), f"{kind} of {name}: element {len(before)} expected, found {start}"
        state[name, kind] = torch.cat([before, values])
    return state


def go_on(case: str, ranks: int, state: dict[tuple[str, str], torch.Tensor]) -> list[float]:
    """The losses after a state was taken over by a new engine."""
    engine = make(case, ranks)
    engine.restore(lambda name, kind, start, n: state[name, kind][start : start + n], HANDED_OVER)
    return train(engine, range(HANDED_OVER, STEPS))


def one_case(case: str) -> dict[str, Any]:
    """Train, hand over, skip and break a step."""
    engine = make(case, 2)
    first = train(engine, range(HANDED_OVER))
    state = joined(parts(engine))
    rest = train(engine, range(HANDED_OVER, STEPS))
    return {
        "losses": first + rest,
        "norm": engine.gradient_norm(),
        "state": state,
        "again": go_on(case, 2, state),
        "weights": engine.full_weights(),
        "poisoned": poisoned(engine),
    }


def poisoned(engine: Any) -> tuple[bool, bool]:
    """Whether a gradient that is not finite on the last rank alone moved this one, and its weights."""
    before = joined(parts(engine))
    rows = batch(50)
    if engine.rank == engine.world_size - 1:
        plain = engine.decoder.model.norm.forward
        engine.decoder.model.norm.forward = lambda x: plain(x) * float("nan")
    share = ROWS // engine.world_size
    engine.accumulate(rows.rows(engine.rank * share, (engine.rank + 1) * share), rows.num_targets)
    moved = bool(engine.step())
    if engine.rank == engine.world_size - 1:
        engine.decoder.model.norm.forward = plain
    after = joined(parts(engine))
    return moved, all(torch.equal(before[key], after[key]) for key in before)


def start(folder: Path) -> list[subprocess.Popen[bytes]]:
    """Two ranks of this program; `folder` holds state.pt, and what they found afterwards."""
    meeting, kept = meeting_file(folder, 2)
    env = {**os.environ, **meeting, "GLOO_SOCKET_IFNAME": LOOPBACK_INTERFACE}
    command = [sys.executable, __file__, str(folder / "state.pt"), str(folder / "out")]
    started = [
        subprocess.Popen(command, env={**env, **variables}, stderr=subprocess.PIPE, pass_fds=kept)
        for variables in environments(2, None)
    ]
    for file in kept:
        os.close(file)
    return started


def main(state_path: Path, out: str) -> None:
    torch.set_num_threads(1)
    alone = torch.load(state_path, weights_only=True)
    found: dict[str, Any] = {case: one_case(case) for case in CASES}
    for case in FP32:
        found[case]["from one rank"] = go_on(case, 2, alone)
        found[case]["from the case before"] = go_on(case, 2, found[FP32[FP32.index(case) - 1]]["state"])
    torch.save(found, f"{out}.{dist.get_rank()}")


if __name__ == "__main__":
    from yanmo.train.backends.zero import import_deepspeed

    import_deepspeed("cpu")
    main(Path(sys.argv[1]), sys.argv[2])
