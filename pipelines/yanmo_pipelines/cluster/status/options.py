"""Options of `yanmo status`, apart from what does the work: `--help` needs them alone."""

from __future__ import annotations

from dataclasses import dataclass

from yanmo.options.fields import opt
from yanmo.options.shared import StoreOptions
from yanmo_pipelines.cluster.place import PlaceOptions


@dataclass(frozen=True, kw_only=True)
class StatusOptions(PlaceOptions, StoreOptions, group="status"):
    """Show channels, champions and newest outputs, what runs where, what waits and why, what failed last.

    It asks the store, KFP and Kubernetes, each only where it is known, and says which it could not ask. Exit
    code: 0 where any of them answered, else that of the first.
    """

    store: str = opt(
        "",
        "store that is looked at: a folder or s3://bucket/prefix; default: what a mounted Secret says",
        often=True,
        variable="YANMO_STORE",
    )
    channel: str = opt("", "only this channel of the store", often=True)
    runs: int = opt(10, "so many of KFP's newest runs, and of Jobs that ended", most=100, often=True)
    json: bool = opt(False, "print one JSON object", often=True)
