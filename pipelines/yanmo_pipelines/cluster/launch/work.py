"""The work of `launch`: make the training's object or attach to it, follow it, and hand its model on."""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Mapping
from typing import Any

from yanmo.common.errors import EnvironmentFault, StorageError
from yanmo.common.words import plural
from yanmo.stage.stage_run import Finish
from yanmo.store.commit import Result
from yanmo.store.objects import ObjectStore
from yanmo.store.output import Pause, PausedOutput, open_reference
from yanmo_pipelines.cluster.kubernetes_api import KubernetesApi
from yanmo_pipelines.cluster.launch.follow import Follower
from yanmo_pipelines.cluster.launch.made_by import Maker, maker_of, state_of
from yanmo_pipelines.cluster.launch.training import LaunchRun, Training, training_of
from yanmo_pipelines.cluster.place import PlaceOptions
from yanmo_pipelines.cluster.refusals import Exists, NotFound
from yanmo_pipelines.launch_options import LAUNCHED, LaunchOptions

log = logging.getLogger(__name__)
_GONE_SECONDS = 600.0
"""Longest wait for an earlier training of the name to be gone: its nodes save before they go."""


def work(run: LaunchRun) -> Result:
    """Train on the nodes; the model is the part `train` of what is committed."""
    options = run.options
    api = api_of(options)
    training = training_of(run, owners_here(api))
    maker = maker_of(api, training, options.by)
    nodes = _made_or_attached(api, maker, training, options)
    log.info("follow it: kubectl -n %s get %s %s", api.namespace, maker.kind.lower(), training.name)
    began = time.monotonic()
    found = Follower(api, maker, training.name, nodes).to_its_end(options.look_seconds)
    _delete(api, maker, training.name)
    if isinstance(found, PausedOutput):
        return Result(counts={}, pause=Pause(where=found.where, why=found.why))
    said = {"kind": maker.kind, "name": training.name, "nodes": nodes, "ranks": training.ranks}
    said["seconds"] = round(time.monotonic() - began, 1)
    run.attempt.write("launch.json", json.dumps(said, indent=1) + "\n", role="record")
    return Result(counts={}, references={"train": open_reference(run.store, found)})


def owners_here(api: KubernetesApi) -> tuple[Mapping[str, Any], ...]:
    """Return the ownerReferences of what this process launches; none where it runs in no pod.

    Whose a training is, so that Kubernetes deletes one with the other: the owner of the launcher's own pod,
    the Workflow of a run of KFP's or the Job of a rerun, and not the pod: its eviction ends no training.
    Where two runs wait for one training both own it.

    Raises:
        Forbidden: this pod may not read pods.
    """
    names = (os.environ.get(name, "") for name in ("KFP_POD_NAME", "HOSTNAME"))  # the latter: 63 characters
    pod = next(filter(None, names), "")
    if not pod or "KUBERNETES_SERVICE_HOST" not in os.environ:
        return ()
    found = api.get(api.in_namespace("pods", pod), f"read the launcher's own pod {pod}")
    return tuple(
        {name: each[name] for name in ("apiVersion", "kind", "name", "uid")}
        for each in found["metadata"].get("ownerReferences") or []
        if each.get("controller")
    )


def show_pause(options: LaunchOptions, store: ObjectStore, paused: PausedOutput) -> Finish:
    """A pause stands for the model as well: who evaluates it passes it on."""
    return Finish(artifacts={"train": paused.to_json()})


def api_of(options: LaunchOptions) -> KubernetesApi:
    """The cluster that these options name."""
    return KubernetesApi.of(PlaceOptions(namespace=options.namespace, context=options.context))


def _made_or_attached(api: KubernetesApi, maker: Maker, training: Training, options: LaunchOptions) -> int:
    """Make the training's objects, or find those of an earlier launch at work; the number of its nodes.

    Raises:
        EnvironmentFault: the name is taken by something else.
        StorageError: an earlier one of the name does not go.
    """
    wanted, *others = maker.objects(training)
    give_up = time.monotonic() + _GONE_SECONDS
    while True:
        try:
            made = api.create(maker.path, f"create {maker.kind} {training.name}", wanted)
            _make_beside(api, made, others)
            queue = f" in queue {options.queue}" if options.queue else ""
            log.info("made %s %s: %s%s", maker.kind, training.name, plural(training.nodes, "node"), queue)
            return training.nodes
        except Exists:
            found = _found(api, maker, training)
        if found is not None and _goes_on(found, options):
            _make_beside(api, found, others)
            return _attached(api, maker, found, training)
        if time.monotonic() > give_up:
            raise StorageError(
                f"{maker.kind} {training.name} of an earlier launch is being deleted for too long; "
                f"`kubectl -n {api.namespace} describe {maker.kind.lower()} {training.name}` says why"
            )
        if found is not None and not found["metadata"].get("deletionTimestamp"):
            log.info("%s %s of an earlier launch has ended; it is deleted", maker.kind, training.name)
            _delete(api, maker, training.name)
        time.sleep(options.look_seconds)


def _found(api: KubernetesApi, maker: Maker, training: Training) -> dict[str, Any] | None:
    try:
        found = api.get(f"{maker.path}/{training.name}", f"read {maker.kind} {training.name}")
    except NotFound:
        return None
    labels = found["metadata"].get("labels") or {}
    if labels.get(LAUNCHED) != training.labels[LAUNCHED]:
        raise EnvironmentFault(
            f"{maker.kind} {training.name} in namespace {api.namespace} is not ours: it lacks the label "
            f"{LAUNCHED}={training.labels[LAUNCHED]}; delete or rename it, or launch in another --namespace"
        )
    return found


def _goes_on(found: Mapping[str, Any], options: LaunchOptions) -> bool:
    """Return whether to follow what is there, which works, waits, or ended well; else it is begun again."""
    over = ("Failed", "Complete") if options.force else ("Failed",)
    return not found["metadata"].get("deletionTimestamp") and state_of(found)[0] not in over


def _attached(api: KubernetesApi, maker: Maker, found: Mapping[str, Any], training: Training) -> int:
    """Join the owners of what is there; the number of its nodes."""
    nodes = nodes_of(found)
    log.info(
        "%s %s is there already, with %s: attached to it", maker.kind, training.name, plural(nodes, "node")
    )
    owners = list(found["metadata"].get("ownerReferences") or [])
    new = [dict(owner) for owner in training.owners if owner["uid"] not in {o.get("uid") for o in owners}]
    if new:
        changed = {"metadata": {"ownerReferences": [*owners, *new]}}
        api.merge(f"{maker.path}/{training.name}", f"own {maker.kind} {training.name}", changed)
    return nodes


def nodes_of(found: Mapping[str, Any]) -> int:
    """Of a TrainJob or a Job that was made."""
    spec = found.get("spec") or {}
    return int((spec.get("trainer") or {}).get("numNodes") or spec.get("completions") or 1)


def _make_beside(api: KubernetesApi, made: Mapping[str, Any], others: list[dict[str, Any]]) -> None:
    """Make what belongs to the first object, so that it is deleted with it."""
    owner = {"apiVersion": made.get("apiVersion", "batch/v1"), "kind": made.get("kind", "Job")}
    owner |= {name: made["metadata"][name] for name in ("name", "uid")}
    for each in others:
        body = {**each, "metadata": {**each["metadata"], "ownerReferences": [owner]}}
        try:
            name = each["metadata"]["name"]
            api.create(api.in_namespace("services"), f"create Service {name}", body)
        except Exists:
            continue


def _delete(api: KubernetesApi, maker: Maker, name: str) -> None:
    try:
        api.delete(f"{maker.path}/{name}", f"delete {maker.kind} {name}")
    except NotFound:
        return
