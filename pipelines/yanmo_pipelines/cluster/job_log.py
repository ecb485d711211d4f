"""Follows a Job to its end: its pods' logs as they come, what they wait for, and its exit code."""

from __future__ import annotations

import logging
import re
import sys
import time
from collections.abc import Mapping
from typing import Any

from yanmo.common.answers import visible
from yanmo.common.errors import ExitCode
from yanmo_pipelines.cluster import unmade
from yanmo_pipelines.cluster.jobs import ended_state, how_job_ended, pods_of_job, started
from yanmo_pipelines.cluster.kubernetes_api import KubernetesApi
from yanmo_pipelines.cluster.left_running import patiently
from yanmo_pipelines.cluster.refusals import NotFound
from yanmo_pipelines.cluster.waiting import waiting

log = logging.getLogger(__name__)

_TOLD = re.compile(r"failed with exit code (\d+) matching")
_DOCUMENTED = {int(code) for code in ExitCode}


def follow_job(api: KubernetesApi, name: str, look_seconds: float) -> int:
    """Print what the Job's pods say until it has ended; the exit code of its stage.

    Raises:
        NoAnswer: Kubernetes was away for too long.
        NotFound: the Job is gone.
    """
    shown, said = dict[str, str](), set[str]()
    path = api.in_namespace("jobs", name, group="apis/batch/v1")

    def look() -> tuple[dict[str, Any], list[dict[str, Any]]]:
        job, pods = api.get(path, f"read Job {name}"), pods_of_job(api, name)
        for pod in pods:
            _show(api, pod, shown, said)
        for why in unmade.of_job(api, name) if not pods else ():
            _once(said, f"no pod is made: {why}")
        return job, pods

    while True:
        job, pods = patiently(look, "the Job", look_seconds)
        state, message = how_job_ended(job)
        if state == "Complete":
            log.info("Job %s is complete", name)
            return ExitCode.DONE
        if state == "Failed":
            code = _code(pods, message)
            log.error("Job %s failed with exit code %d: %s", name, code, message)
            return code
        time.sleep(look_seconds)


def _show(api: KubernetesApi, pod: Mapping[str, Any], shown: dict[str, str], said: set[str]) -> None:
    """Print what is new of a pod: its log, what it waits for, how it ended."""
    name = pod["metadata"]["name"]
    if found := waiting(pod):
        _once(said, f"{found.what} waits: {found.why}")
    if not started(pod):
        return
    _once(said, f"pod {name} on node {pod['spec'].get('nodeName', '?')}")
    end = ended_state(pod)
    ending = f"pod {name} ended with exit code {end.get('exitCode')} ({end.get('reason')})" if end else ""
    if ending not in said:
        shown[name] = show_new_lines(api, name, shown.get(name, ""))
    if ending:
        _once(said, ending)


def _once(said: set[str], line: str) -> None:
    if line not in said:
        log.info("%s", line)
    said.add(line)


def show_new_lines(api: KubernetesApi, pod: str, last: str) -> str:
    """Print the lines of a pod's log after the time `last`; the time of the last one."""
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


def _code(pods: list[dict[str, Any]], message: str) -> int:
    """The exit code of the last pod that ended, or the one that the Job tells of: its pod may be gone.

    Else 75: the Job's time was over, or its pods were killed.
    """
    told = _TOLD.search(message)
    ends = [end for pod in pods if (end := ended_state(pod))]
    code = int(told[1]) if told else int(ends[-1].get("exitCode", 0)) if ends else 0
    return code if code in _DOCUMENTED and code else ExitCode.RETRY
