"""What the nodes of a launched training run: `yanmo train` with the options that the launch was given.

The launch has a key of its own, made of what decides the model: the training's semantic options and its
inputs. So a launch whose model is there finds it without asking for a node. Options
that a machine decides (`auto`) stay open in it, and are the same for the same key (train/supervision/
automatic.py records them).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from yanmo.common.errors import UsageError
from yanmo.options.command_line import load_given
from yanmo.options.fields import NONE, by_kind
from yanmo.options.one_line import as_line, read_line
from yanmo.options.shared import store_flags
from yanmo.stage.stage_run import KeyInput, Prepared, StageRun
from yanmo.store.manifest import digest
from yanmo.store.output import Output
from yanmo.train.config import STAGE as TRAIN
from yanmo.train.config import TrainConfig
from yanmo_pipelines.launch_options import DAY, LAUNCHED, NIGHT, LaunchOptions
from yanmo_pipelines.parameters import read_settings
from yanmo_pipelines.resources import GPU, METRICS_PORT, labels_of

RUN_ID, CHANNEL, STORE = "yanmo.dev/run-id", "yanmo.dev/channel", "yanmo.dev/store"
_BY_THE_LAUNCH = (
    *("nnodes", "node_rank", "rendezvous", "store", "channel", "run_id", "token_cache", "model", "inputs"),
    *("pointer", "take", "force", "executor_input", "metrics_port", "endpoint"),
)
_DIGITS = 12
LaunchRun = StageRun[LaunchOptions, "Settings"]


@dataclass(frozen=True)
class Settings:
    """The training's options, checked."""

    line: str
    """As `yanmo train --options` takes it."""
    ranks: int
    """Of each node."""


@dataclass(frozen=True)
class Training:
    """One training on several nodes, as the cluster is told of it."""

    name: str
    """Of its TrainJob or Job: the same for the same key."""
    arguments: tuple[str, ...]
    """Of the image's entrypoint, on every node."""
    nodes: int
    ranks: int
    resources: Mapping[str, str]
    """Of a node: requests, and limits."""
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    runtime: str
    owners: tuple[Mapping[str, Any], ...] = field(default=())
    """ownerReferences: while one of these is there, so is the training."""


def prepare(run: LaunchRun) -> Prepared[Settings]:
    """Read the training's options, and what else its model depends on.

    Raises:
        UsageError: an option that it does not have, a value that it cannot have, or one that launch sets.
    """
    options = run.options
    _check_store(options.store)
    settings = _settings_of(options)
    ranks = settings.get("ranks", str(options.gpus) if int(str(options.gpus)) else "1")
    checked = [f"--nnodes={options.nodes}", "--node-rank=0", "--rendezvous=node-0:29500", "--store=s3://s/s"]
    line = as_line({f"{TRAIN.name}.{name}": text for name, text in settings.items()})
    config, given = load_given(
        TrainConfig,
        [*checked, *([] if "ranks" in settings else [f"--ranks={ranks}"]), f"--options={line}"],
        f"yanmo {TRAIN.name}",
    )
    if config.benchmark:
        raise UsageError("--set benchmark: launch trains a model; give it to `yanmo train` on one node")
    semantic = by_kind(config, "semantic")
    made_with = {"revision": TRAIN.revision, "options": semantic, "given": sorted(given & semantic.keys())}
    inputs: dict[str, KeyInput] = {
        "training": {"content_digest": digest(made_with), "uri": ""},
    }
    return Prepared(Settings(line, config.ranks), inputs)


def _check_store(uri: str) -> None:
    """Refuse a store that other machines cannot reach.

    Raises:
        UsageError: a folder below the one that this shell is in.
    """
    if not uri.startswith(("s3://", "file:///", "minio://")):
        raise UsageError(
            f"--store {uri}: a folder of this machine; expected s3://bucket/prefix, or file:///path of a "
            "volume that launcher and nodes mount there"
        )


def _settings_of(options: LaunchOptions) -> dict[str, str]:
    """Option of the training -> its text, of --training and --set together."""
    found: dict[str, str] = {}
    for line in options.training:
        found |= read_line(line).get(TRAIN.name, {})
    for name, text in read_settings(options.set).items():
        stage, dot, option = name.rpartition(".")
        if dot and stage != TRAIN.name:
            raise UsageError(f"--set {name}: expected an option of train, such as train.{option}")
        found[option.replace("-", "_")] = text
    wrong = sorted(found.keys() & set(_BY_THE_LAUNCH))
    if wrong:
        raise UsageError(f"--set {wrong[0]}: launch sets it itself on every node; leave it out")
    return found


def training_of(run: LaunchRun, owners: tuple[Mapping[str, Any], ...] = ()) -> Training:
    """The training that `run` launches."""
    options, key = run.options, run.key[:_DIGITS]
    labels = {**labels_of(TRAIN.name), LAUNCHED: key}
    if options.queue:
        labels["kueue.x-k8s.io/queue-name"] = options.queue
        labels["kueue.x-k8s.io/priority-class"] = NIGHT if options.preemptible else DAY
    annotations = {RUN_ID: options.run_id, CHANNEL: options.channel, STORE: run.store.uri}
    gpus = {GPU: str(options.gpus)} if int(str(options.gpus)) else {}
    return Training(
        name=f"yanmo-train-{key}",
        arguments=tuple(_arguments(run)),
        nodes=options.nodes,
        ranks=run.prepared.ranks,
        resources={"cpu": str(options.cpu), "memory": str(options.memory), **gpus},
        labels=labels,
        annotations={name: text for name, text in annotations.items() if text},
        runtime=options.runtime,
        owners=owners,
    )


def _arguments(run: LaunchRun) -> list[str]:
    options = run.options
    given = {
        "store": run.store.uri,
        "channel": options.channel,
        "run-id": options.run_id,
        "token-cache": _reference(run.inputs["token_cache"]),
        "model": _reference(run.inputs["model"]),
        "options": run.prepared.line,
        "metrics-port": str(METRICS_PORT),
    }
    words = [f"--{name}={text}" for name, text in given.items() if text]
    words += [each for each in store_flags(options) if not each.startswith("--scratch")]
    words += ["--force"] if options.force else []
    # Kubernetes replaces $(NAME) in arguments, and takes $$ for $.
    return [TRAIN.name, *(word.replace("$(", "$$(") for word in words)]


def _reference(output: Output | None) -> str:
    return json.dumps(vars(output.reference)) if output else NONE
