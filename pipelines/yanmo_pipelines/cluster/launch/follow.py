"""Follows a training on several nodes to its end: the queue, every node's state, the log of node 0.

It only looks: whatever ends it, the training goes on, and the next launch of the same key follows it again.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Mapping
from typing import Any

from yanmo.common.errors import ERROR_OF, ExitCode, StorageError, UsageError
from yanmo.common.words import plural, visible
from yanmo.store.manifest import Reference
from yanmo.store.output import PausedOutput
from yanmo.store.runs.failure_card import Details, attach
from yanmo_pipelines.cluster.kubernetes_api import KubernetesApi
from yanmo_pipelines.cluster.launch.made_by import Maker, state_of
from yanmo_pipelines.cluster.launch.pods import (
    End,
    NodePod,
    gravest,
    pods_of,
    result_of,
    waits_in_queue,
    warnings_of,
)
from yanmo_pipelines.cluster.pods import started, waits_for
from yanmo_pipelines.cluster.refusals import Forbidden, NotFound, patiently

log = logging.getLogger(__name__)
_LAST_LINES = 20
_MOST_WARNINGS = 10


class Follower:
    """Follows one training."""

    def __init__(self, api: KubernetesApi, maker: Maker, name: str, nodes: int) -> None:
        self._api, self._maker, self.name, self._nodes = api, maker, name, nodes
        self._said, self._shown = set[str](), dict[str, str]()
        self._ended = dict[str, End]()
        self._is_up = False

    def to_its_end(self, look_seconds: float) -> Reference | PausedOutput:
        """Follow it; what node 0 made, or where it paused.

        Raises:
            UsageError, DataError, EnvironmentFault, StorageError, RuntimeError: it failed; the gravest end of
                all nodes, its exit code by the type of the error.
            NoAnswer: Kubernetes was away for too long.
        """
        while (found := patiently(self._look, "the training", look_seconds)) is None:
            time.sleep(look_seconds)
        return found

    def _look(self) -> Reference | PausedOutput | None:
        """Say what is new; the result where it has ended well."""
        kind = self._maker.kind
        try:
            made = self._api.get(f"{self._maker.path}/{self.name}", f"read {kind} {self.name}")
        except NotFound:
            raise StorageError(
                f"{kind} {self.name} was deleted while it was followed; what the training saved is kept, and "
                "the next try goes on from there"
            ) from None
        state, message = state_of(made)
        pods = pods_of(self._api, self._maker.pods, self.name)
        for pod in pods:
            self._show(pod)
        if state == "Complete":
            found = result_of(pods)
            if found is None:
                raise StorageError(
                    f"{kind} {self.name} is complete, but node 0's pod is gone with its word of what it "
                    "made: the next try finds that in the store"
                )
            return found
        if state == "Failed":
            raise self._failure(made, pods, message)
        self._show_state(made, state, message, pods)
        return None

    def _show_state(self, made: Mapping[str, Any], state: str, message: str, pods: list[NodePod]) -> None:
        """Say what it waits for, or how many nodes run."""
        running = [pod for pod in pods if pod.phase == "Running"]
        if len(running) == self._nodes:
            if not self._is_up:
                log.info("all %s run", plural(self._nodes, "node"))
            self._is_up = True
            return
        ended = [pod.end() for pod in pods if pod.phase != "Running"]
        if len(pods) == self._nodes and all(end and end.code == ExitCode.DONE for end in ended):
            return
        if self._is_up:
            self._is_up, self._said = False, {one for one in self._said if one.startswith("node ")}
            again = (
                "its room is taken back, it saves and waits" if state == "Suspended" else "all start again"
            )
            log.warning("%d of %s run; %s", len(running), plural(self._nodes, "node"), again)
        why = waits_in_queue(self._api, made["metadata"])
        if why:
            self._once(f"waits in {why}")
        elif state == "Suspended":
            self._once(f"is suspended{f': {message}' if message else ''}")
        if not why and len(pods) < self._nodes:
            for line in self._warnings(made):
                self._once(line, logging.WARNING)

    def _warnings(self, made: Mapping[str, Any]) -> list[str]:
        try:
            return warnings_of(self._api, self.name, str(made["metadata"].get("creationTimestamp", "")))
        except (Forbidden, NotFound) as error:
            return [f"why no pod is made cannot be asked: {error}"]

    def _show(self, pod: NodePod) -> None:
        """Say what is new of a node; of node 0 its log too."""
        if why := waits_for(pod.pod):
            self._once(f"node {pod.node} waits: {why}")
        if not started(pod.pod):
            return
        self._once(f"node {pod.node} is pod {pod.name} on {pod.place or '?'}")
        end = pod.end()
        if pod.node == 0 and pod.name not in self._ended:
            self._shown[pod.name] = _show_new_lines(self._api, pod.name, self._shown.get(pod.name, ""))
        if end and pod.name not in self._ended:
            self._ended[pod.name] = end
            log.log(logging.INFO if end.code == ExitCode.DONE else logging.WARNING, "%.300s", end)

    def _once(self, line: str, level: int = logging.INFO) -> None:
        if line not in self._said:
            log.log(level, "%s", line)
        self._said.add(line)

    def _failure(self, made: Mapping[str, Any], pods: list[NodePod], message: str) -> Exception:
        """The error for the gravest end of all nodes; its card, events and last lines are logged."""
        grave = gravest(pods) or next(reversed(self._ended.values()), None)  # the pods may be gone
        kind = self._maker.kind
        for line in self._warnings(made)[-_MOST_WARNINGS:]:
            log.error("event: %s", line)
        if grave is None:
            return StorageError(f"{kind} {self.name} failed before a pod of it began: {message}")
        own = next((pod for pod in pods if pod.node == grave.node), None)
        if own is not None:
            self._show_last_words(own)
        others = [str(pod.end()) for pod in pods if pod.node != grave.node and pod.end()]
        where = f"node {grave.node} of {self._nodes}" + (f", pod {own.name} on {own.place}" if own else "")
        error = ERROR_OF.get(grave.code, StorageError)(f"{grave.why or message} ({where})")
        attach(error, Details(why=grave.why or message, where=where, others=tuple(others[:8])))
        return error

    def _show_last_words(self, pod: NodePod) -> None:
        """The node's card and, where it is not node 0, whose log was shown, its last lines."""
        for line in pod.message.splitlines():
            log.error("node %d: %s", pod.node, line)
        if pod.node == 0:
            return
        try:
            text = self._api.log(pod.name).decode("utf-8", "replace")
        except (NotFound, Forbidden, UsageError) as error:
            log.error("the log of pod %s cannot be read: %s", pod.name, error)
            return
        for line in text.splitlines()[-_LAST_LINES:]:
            sys.stderr.write(f"node {pod.node}: {visible(line.partition(' ')[2])}\n")
        sys.stderr.flush()


def _show_new_lines(api: KubernetesApi, pod: str, last: str) -> str:
    """Print the lines of a pod's log after the time `last`; return the time of the last one."""
    try:
        text = api.log(pod, since=last).decode("utf-8", "replace")
    except NotFound:  # its node is away, or it was deleted this moment
        return last
    for line in text.splitlines():
        stamp, _, said = line.partition(" ")
        if stamp > last:
            sys.stderr.write(visible(said) + "\n")
            last = stamp
    sys.stderr.flush()
    return last
