"""A training in the cluster is disturbed, again and again, and its model compared with an undisturbed one's.

What killed_jobs.py and killed_runs.py have in common. Each way of disturbing has stores of its own, beside
the tests' own (README.md), as equal options and inputs have one key; the token cache of --channel is copied
there, so nothing that others made is touched. A pod is disturbed once it has trained beyond the step that it
began with, and some seconds more, drawn at random.
"""

from __future__ import annotations

import argparse
import random
import re
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from real_cluster import RealCluster

_KILL = (
    "import os, signal\n"
    "for name in os.listdir('/proc'):\n"
    "    if name.isdigit() and int(name) not in (1, os.getpid()):\n"
    "        try: words = open(f'/proc/{name}/cmdline').read().split(chr(0))\n"
    "        except OSError: continue\n"
    "        program = words[0].rpartition('/')[2]\n"
    "        if program.startswith('python') and any('yanmo.train' in word for word in words):\n"
    "            os.kill(int(name), signal.SIGKILL)\n"
)
"""SIGKILL to the training's processes, not to the container's first one."""
DONE_TO = {"deletes": "deleted by force", "evictions": "evicted", "kills": "killed"}
"""Option that says how often -> what is done to a pod."""


@dataclass(frozen=True)
class Training:
    """A training whose pods follow each other."""

    name: str
    container: str
    pods: Callable[[], list[dict[str, Any]]]
    """The newest last."""
    is_over: Callable[[], bool]


class Disturbances:
    """What is done to trainings, and what becomes of their models."""

    def __init__(self, given: argparse.Namespace) -> None:
        self.cluster, self.given = RealCluster(), given
        self.label = f"killed-{uuid.uuid4().hex[:6]}"
        self.draw = random.Random(given.seed)
        self.digests = {"given": given.equal_to} if given.equal_to else {}
        self.disturbed: dict[str, int] = {}

    def batches(self, most: int) -> dict[str, tuple[str, int]]:
        """Name -> what is done to its pods, and how often; each is a training of its own."""
        found = {} if self.given.equal_to else {"undisturbed": ("", 0)}
        for option in DONE_TO:
            count = getattr(self.given, option)
            for begin in range(0, count, most):
                found[f"{option}-{begin // most + 1}"] = (option, min(most, count - begin))
        return found

    def store(self, name: str) -> str:
        """A new store that holds the data."""
        store = f"{self.cluster.store}-{self.label}-{name}"
        source = [f"{self.given.channel}/tokenize", f"--store={self.cluster.store}"]
        self.cluster.yanmo("store", "cp", *source, f"--to={store}", f"--pointer={self.label}/tokenize")
        return store

    def disturb(self, training: Training, option: str, count: int) -> int:
        """Disturb it so often; how often it could be done before its end."""
        done, last = 0, ""
        while done < count and (found := self._progress(training, last)):
            pod, uid = found
            time.sleep(self.draw.uniform(0, self.given.within))
            step = self._step(training, pod)
            try:
                self._do(option, training, pod)
            except RuntimeError as error:
                print(f"  missed: {error}", flush=True)
                continue
            done, last = done + 1, uid
            print(f"{training.name}: {DONE_TO[option]} at step {step} of {self.given.steps}", flush=True)
        return done

    def compare(self, name: str, model: str, store: str) -> None:
        """Note the digest of a model, by its name or pointer."""
        shown = self.cluster.yanmo("store", "show", model, f"--store={store}")
        content = re.search(r"^content +([0-9a-f]{64})$", shown, re.M)
        if not content:
            raise RuntimeError(f"{name}: {model} has no content: {shown}")
        self.digests[name] = content[1]
        print(f"{name}: model's content sha256 {content[1]}", flush=True)

    def verdict(self) -> int:
        """Exit code."""
        equal = len(set(self.digests.values())) == 1
        print(f"{self.disturbed}: {'equal' if equal else 'NOT EQUAL'}")
        return int(not equal)

    def _progress(self, training: Training, before: str) -> tuple[str, str] | None:
        """Name and uid of a pod other than `before` that has trained; None at the end.

        By uid, as Argo makes a pod that was deleted in its first seconds again under the same name.
        """

        def look() -> Any:
            if training.is_over():
                return "over"
            running = [p for p in training.pods() if p["status"]["phase"] == "Running"]
            if not running or "deletionTimestamp" in (meta := running[-1]["metadata"]):
                return None
            return (
                meta["uid"] != before and self._step(training, meta["name"]) and (meta["name"], meta["uid"])
            )

        found = self.cluster.wait(look, f"training of {training.name}")
        return None if found == "over" else found

    def _step(self, training: Training, pod: str) -> int:
        try:
            return step_of(self.cluster.kubectl("logs", pod, f"--container={training.container}"))
        except RuntimeError:
            return 0

    def _do(self, option: str, training: Training, pod: str) -> None:
        if option == "kills":
            within = ("--container", training.container, "--", "python3", "-c", _KILL)
            self.cluster.kubectl("exec", pod, *within)
        else:
            self.cluster.remove(pod, by_force=option == "deletes")


def step_of(said: str) -> int:
    """The step of which a pod's log speaks last, if the pod itself has made it; else 0."""
    began = re.findall(r"resuming at step (\d+) of", said)
    steps = [int(step) for step in re.findall(r" train +(?:saving )?step (\d+)", said)]
    return steps[-1] if steps and steps[-1] > int(began[-1] if began else 0) else 0


def parser(description: str, steps: int) -> argparse.ArgumentParser:
    """With the options of both scripts."""
    made = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("--deletes", type=int, default=10, help="deletions without notice (--force)")
    made.add_argument("--evictions", type=int, default=10, help="by the API that `kubectl drain` uses")
    made.add_argument("--kills", type=int, default=5, help="SIGKILL to the stage's processes")
    made.add_argument(
        "--equal-to", default="", help="content sha256 of the undisturbed model, if it is known"
    )
    made.add_argument("--within", type=float, default=8, help="seconds of training to a disturbance, at most")
    made.add_argument("--steps", type=int, default=steps)
    made.add_argument("--channel", default="main", help="whose newest token cache is trained on")
    made.add_argument("--seed", type=int, default=1)
    return made
