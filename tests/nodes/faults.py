"""What happens to a training on several nodes, and what is looked at afterwards, from outside."""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

from nights.checks import held_leases
from nights.local_road import clock_variables
from several_nodes import losses, model_of
from torture.place import FilePlace

from nodes.network import Network
from nodes.plan import CUT_SECONDS, FULL_SECONDS, SLOW_SECONDS, Case
from nodes.training import INTERVAL, Training

_LATE_SECONDS, _LEASE_SECONDS, _MOST_STARTS = 900.0, 90.0, 4
_STILL_SECONDS = 180.0
"""Longest that anything may stand still: docs/nodes.md."""
_SLOW_KILOBYTES = 700
"""A second. About a tenth of what two ranks of this model exchange: 1.4 MB in a step of 0.2 s."""
_PULSE_SECONDS = 0.5
_KEPT = ("INPUTS.json", "LEASE.json")
"""What stays of a training that is committed: a lease that was given back among it."""


@dataclass
class Outcome:
    """What became of one case."""

    case: Case
    ends: list[dict[int, int | None]] = field(default_factory=list)
    """Exit codes by node, of each start."""
    lost: int = 0
    """Most steps that one start had to make again."""
    writing: bool = False
    """Whether a checkpoint was being written when the training ended."""
    still: float = 0.0
    """Longest time without a step, from the fault on, while any node ran; seconds."""
    seconds: float = 0.0
    late: bool = False
    """Whether the training was over before it could be disturbed."""
    findings: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, object]:
        return asdict(self)


@dataclass(frozen=True)
class Undisturbed:
    """A model that nothing disturbed."""

    digest: str
    losses: list[float]


def undisturbed(network: Network, store: Path, layout: tuple[int, int], logs: Path) -> Undisturbed:
    """Train one.

    Raises:
        RuntimeError: it did not come to its end.
    """
    logs.mkdir(parents=True, exist_ok=True)
    training = Training(network, store, layout, logs)
    try:
        training.start()
        codes = training.codes(_LATE_SECONDS)
    finally:
        training.end()
    if any(codes.values()) or None in codes.values():
        raise RuntimeError(f"{layout}: {codes}; {training.log(0).read_text(encoding='utf-8')[-2000:]}")
    model = model_of(store)
    return Undisturbed(model.content_digest, losses(model))


def play(case: Case, network: Network, store: Path, logs: Path, expected: Undisturbed) -> Outcome:
    """Train, disturb it, and give the same command again until the model is there."""
    logs.mkdir(parents=True, exist_ok=True)
    outcome, began = Outcome(case), time.monotonic()
    training = Training(network, store, case.layout, logs)
    if case.offset:
        training.clock[case.node] = clock_variables(case.offset)
    try:
        training.start()
        outcome.late = not training.wait(lambda: training.step >= case.step, _LATE_SECONDS)
        with training.watched() as longest:
            if not outcome.late:
                _DEEDS[case.kind](training, case)
            _to_the_end(training, outcome)
        outcome.still = round(longest(), 1)
        if outcome.still > _STILL_SECONDS:
            outcome.findings.append(f"no step for {outcome.still:.0f} s")
    finally:
        training.end()
    outcome.findings += _leftovers(store, training)
    model = model_of(store) if not outcome.findings else None
    if model and (model.content_digest != expected.digest or losses(model) != expected.losses):
        outcome.findings.append(f"another model: {model.content_digest[:12]}, not {expected.digest[:12]}")
    outcome.seconds = round(time.monotonic() - began, 1)
    return outcome


def _to_the_end(training: Training, outcome: Outcome) -> None:
    """Wait for the end of each start; start again while it may go on."""
    case = outcome.case
    while True:
        codes = training.codes(_LATE_SECONDS)
        outcome.ends.append(codes)
        allowed = (0, 75, -signal.SIGKILL, *([78] if case.kind == "disk full" else []))
        wrong = {node: code for node, code in codes.items() if code not in allowed}
        if wrong:
            said = {n: training.log(n).read_text(encoding="utf-8")[-1500:] for n in wrong}
            outcome.findings.append(f"start {training.starts} ended with {wrong}: {said}")
            return
        if not any(codes.values()):
            return
        if training.starts == _MOST_STARTS:
            outcome.findings.append(f"no model after {training.starts} starts: {outcome.ends}")
            return
        if case.kind == "power off":
            training.network.heal(case.node)
        reached, writing = training.step, training.saves
        training.start()
        resumed = training.wait(lambda: "resuming at" in training.log(0).read_text(), _LATE_SECONDS)
        lost = reached - (training.resumed_at() if resumed else 0)
        if not resumed and training.is_over and not any(o.poll() for o in training.running.values()):
            lost = 0  # only the commit was left
        outcome.lost, outcome.writing = max(outcome.lost, lost), outcome.writing or writing
        # The steps between the copy of a state and its commit come on top where it was being written.
        if lost > INTERVAL + (INTERVAL if writing else 1):
            outcome.findings.append(f"{lost} steps lost of {reached}, checkpoints are {INTERVAL} apart")


def _leftovers(store: Path, training: Training) -> list[str]:
    """What must not be there any more."""
    end = time.monotonic() + _LEASE_SECONDS
    while True:
        nodes = range(training.layout[0])
        found = [
            f"process {pid} of node {node}" for node in nodes for pid in training.network.processes(node)
        ]
        found += [f"lease {name}" for name in held_leases(FilePlace(store))]
        works = [path for path in store.glob("runs/train/*") if len(path.name) == 64]  # a key
        found += [f"{path} is left" for work in works for path in work.iterdir() if path.name not in _KEPT]
        found += [f"{path} is left" for path in store.rglob(".tmp-*")]
        if not found or time.monotonic() > end:
            return found
        time.sleep(1)


def _kill(training: Training, case: Case) -> None:
    training.kill(case.node)


def _kill_a_rank(training: Training, case: Case) -> None:
    for pid in training.workers(case.node)[-1:]:
        os.kill(pid, signal.SIGKILL)


def _in_a_checkpoint(deed: Callable[[Training, Case], None]) -> Callable[[Training, Case], None]:
    def later(training: Training, case: Case) -> None:
        training.wait(lambda: training.saves, _LATE_SECONDS, closely=True)
        deed(training, case)

    return later


def _stop(training: Training, case: Case) -> None:
    training.running[case.node].terminate()


def _cut_off(training: Training, case: Case) -> None:
    training.network.cut(case.node)
    time.sleep(CUT_SECONDS)
    training.network.heal(case.node)


def _slow_network(training: Training, case: Case) -> None:
    training.network.slow(case.node, _SLOW_KILOBYTES)
    time.sleep(SLOW_SECONDS)
    training.network.heal(case.node)


def _slow_processor(training: Training, case: Case) -> None:
    """All processes of the node run for a tenth of the time."""
    end = time.monotonic() + SLOW_SECONDS
    while time.monotonic() < end:
        training.signal(case.node, signal.SIGSTOP)
        time.sleep(0.9 * _PULSE_SECONDS)
        training.signal(case.node, signal.SIGCONT)
        time.sleep(0.1 * _PULSE_SECONDS)


def _disk_full(training: Training, case: Case) -> None:
    with training.full_disk():
        training.wait(lambda: False, FULL_SECONDS)


def _stand_still(training: Training, case: Case) -> None:
    training.signal(case.node, signal.SIGSTOP)
    others = [one for node, one in training.running.items() if node != case.node]
    end = time.monotonic() + _LATE_SECONDS
    while any(one.poll() is None for one in others) and time.monotonic() < end:
        time.sleep(0.5)
    training.signal(case.node, signal.SIGCONT)


def _power_off(training: Training, case: Case) -> None:
    training.network.cut(case.node)
    training.kill(case.node)


def _nothing(training: Training, case: Case) -> None:
    """The clock is wrong from the beginning."""


_DEEDS: dict[str, Callable[[Training, Case], None]] = {
    "kill": _kill,
    "kill node 0": _kill,
    "kill a rank": _kill_a_rank,
    "kill in a checkpoint": _in_a_checkpoint(_kill),
    "kill node 0 in a checkpoint": _in_a_checkpoint(_kill),
    "stop in a checkpoint": _in_a_checkpoint(_stop),
    "cut off": _cut_off,
    "slow network": _slow_network,
    "slow processor": _slow_processor,
    "disk full": _disk_full,
    "clock": _nothing,
    "stand still": _stand_still,
    "power off": _power_off,
}


def fresh(template: Path, store: Path) -> Path:
    """The store as it is before any training."""
    shutil.rmtree(store, ignore_errors=True)
    shutil.copytree(template, store)
    return store


def as_text(outcome: Outcome) -> str:
    return json.dumps(outcome.to_json(), ensure_ascii=False)
