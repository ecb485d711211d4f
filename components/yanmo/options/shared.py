"""Options that every stage takes, or every tool: where the store is, which channel, log, metrics."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

from yanmo.common.address import Address
from yanmo.common.names import name_problems
from yanmo.options.fields import Options, flag, opt, spelled

Settings = Mapping[str, Mapping[str, str]]
"""Stage -> option -> its text."""


def channel_opt(help: str) -> Any:
    """Declare the option that names a channel."""
    return opt("dev", help, kind="environment", often=True, variable="YANMO_CHANNEL")


@dataclasses.dataclass(frozen=True, kw_only=True)
class StoreOptions(Options, group="store"):
    """Where outputs are stored."""

    store: str = opt(
        "runs/store",
        "where outputs are stored: a folder, file:///path or s3://bucket/prefix",
        kind="environment",
        often=True,
        variable="YANMO_STORE",
    )
    endpoint: str = opt(
        "",
        "address of the S3 server, http(s)://host[:port]; default: AWS_ENDPOINT_URL_S3, "
        "AWS_ENDPOINT_URL, the mounted secret, else AWS",
        kind="environment",
        metavar="URL",
    )
    scratch: str = opt(
        "",
        "folder on a local disk for work in progress and, with an S3 store, for downloaded inputs; "
        "default: YANMO_SCRATCH, else the user's cache folder",
        kind="environment",
    )
    scratch_gib: float = opt(200.0, "largest size of the cache of downloaded inputs, GiB", kind="environment")


def store_flags(options: StoreOptions) -> list[str]:
    """Return the flags that tell another command where the store's server and this machine's scratch are."""
    defaults = {f.name: f.default for f in dataclasses.fields(StoreOptions) if f.name != "store"}
    given = {name: getattr(options, name) for name in defaults}
    return [f"{flag(name)}={spelled(value)}" for name, value in given.items() if value != defaults[name]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class ChannelOptions(StoreOptions, group="store"):
    """Where outputs are stored, and which pointers are read and moved."""

    channel: str = channel_opt(
        "name of a series of runs, such as dev or nightly; inputs are the channel's latest outputs "
        "unless others are given, and this run's output becomes the latest"
    )
    inputs: str = opt(
        "latest",
        "inputs that are not given by their own flag: 'latest' for the channel's latest outputs, run:ID "
        "for what that run of the channel made or found",
        kind="environment",
    )
    pointer: str = opt(
        "",
        "pointer of the channel that is moved on success; default: the stage's name; 'none' moves none",
        kind="environment",
    )
    take: str = opt(
        "",
        "output of this stage, STAGE/KEY or a reference, that is handed on as it is: nothing is made and "
        "no pointer moved; pipelines give it where they finish an earlier run's training",
        kind="environment",
    )

    def contradictions(self) -> list[str]:
        return name_problems("--channel", self.channel)


def address_problems(name: str, address: str) -> Iterator[str]:
    """Yield what is wrong with the address of an HTTP server, without its secrets; "" is none."""
    if not address:
        return
    shown = Address(address, bare=True)
    try:
        parts = urlsplit(address)
        is_one = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        is_one = False
    if shown.has_secrets:
        yield f"{name} {shown}: expected no user, password or query (see docs/reference/metrics.md)"
    elif not is_one or "#" in address or not address.isprintable() or " " in address:
        yield f"{name}: expected http(s)://host[:port], such as http://pushgateway:9091"


@dataclasses.dataclass(frozen=True, kw_only=True)
class LogOptions(Options, group="run"):
    """This run alone: its log."""

    log_level: str = opt(
        "info",
        "least severe log message shown",
        kind="environment",
        choices=("debug", "info", "warning", "error"),
    )
    log_format: str = opt(
        "plain",
        "form of the log's lines: plain for people, json for programs, with level and figures",
        kind="environment",
        choices=("plain", "json"),
        variable="YANMO_LOG_FORMAT",
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunOptions(LogOptions, group="run"):
    """This run alone: its log, its metrics, what it passes to a pipeline."""

    executor_input: str = opt(
        "", "KFP's executor input, JSON; pipelines set it", kind="environment", free=True
    )
    run_id: str = opt("", "id of the pipeline run, for logs and metrics", kind="environment")
    wait_seconds: float = opt(
        0.0,
        "longest wait for a store that fails, for another run of the same output, and between tries after an "
        "end with 75, seconds; GPUs are held so long. 0: one try, another run is waited for to its end. The "
        "pods of a pipeline get 21600",
        kind="environment",
        variable="YANMO_WAIT_SECONDS",
    )
    force: bool = opt(
        False, "make the output again even if it is already committed", kind="environment", often=True
    )
    metrics_port: int = opt(
        0,
        "TCP port of the Prometheus endpoint /metrics; 0 takes a free port, -1 serves no metrics",
        kind="environment",
        least=-1,
        most=65535,
    )
    metrics_address: str = opt(
        "loopback",
        "addresses of this machine where /metrics is served; pods get all",
        kind="environment",
        choices=("loopback", "all"),
        variable="YANMO_METRICS_ADDRESS",
    )
    metrics_wait_seconds: float = opt(
        0.0,
        "longest wait at the end for one more scrape of /metrics, where there were some; pods get 20",
        kind="environment",
        variable="YANMO_METRICS_WAIT_SECONDS",
    )
    gpu_metrics: bool = opt(
        True,
        "serve what the driver says of this pod's GPUs; false where a DCGM exporter watches them",
        kind="environment",
        variable="YANMO_GPU_METRICS",
    )
    pushgateway: str = opt(
        "",
        "address of a Prometheus Pushgateway that gets the final figures, http(s)://host[:port]; user and "
        "password come from the environment; default: the mounted secret, else none",
        kind="environment",
        variable="YANMO_PUSHGATEWAY_URL",
        metavar="URL",
    )

    def contradictions(self) -> list[str]:
        return list(address_problems("--pushgateway", self.pushgateway))


@dataclasses.dataclass(frozen=True, kw_only=True)
class ToolOptions(StoreOptions, LogOptions):
    """Options that every tool takes; each tool's options derive from this."""


WHAT = (
    "an output: STAGE/KEY (the first 4 digits of the key are enough), KEY, CHANNEL/POINTER (demo/champion) "
    "or a file with a reference"
)
"""What names an output of any stage: see `yanmo.store.named`."""
MODEL = (
    "train/KEY, KEY, a channel (its champion), CHANNEL/POINTER, latest, champion, run:ID or a file with a "
    "reference"
)
"""What names a model."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class NamedOptions(ToolOptions):
    """Options of a tool that reads an output by its name."""

    channel: str = channel_opt("whose newest output `latest` is, and whose run `run:ID`")


@dataclasses.dataclass(frozen=True, kw_only=True)
class EngineOptions(Options, group="engine"):
    """On this machine, or on many."""

    engine: str = opt(
        "local",
        "where the work on files is done: local in processes of this machine, ray on a Ray cluster "
        "(docs/how-to/prepare-text.md); the output is the same",
        kind="execution",
        form="data_engine",
        choices=("local", "ray"),
    )
    ray_address: str = opt(
        "",
        "Ray cluster of --engine ray: ray://HOST:10001, or auto inside of a Ray Job",
        kind="environment",
        variable="RAY_ADDRESS",
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class StageOptions(ChannelOptions, RunOptions):
    """Options that every stage takes; each stage's config derives from this."""

    def problems_beside(self, others: Mapping[str, StageOptions], settings: Settings) -> list[str]:
        """Return what contradicts options of other stages of the run; checked before the first stage begins.

        Args:
            others: stage -> its options.
            settings: stage -> option -> text, of those that were given.
        """
        return []

    def is_helper(self) -> bool:
        """Return whether this process is one of several that make an output, and not the one that commits."""
        return False
