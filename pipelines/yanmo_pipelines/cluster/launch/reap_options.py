"""Options of `yanmo launch reap`, apart from what does the work: `--help` needs them alone."""

from __future__ import annotations

from dataclasses import dataclass

from yanmo.options.fields import opt
from yanmo_pipelines.cluster.place import PlaceOptions


@dataclass(frozen=True, kw_only=True)
class ReapOptions(PlaceOptions, group="reap"):
    """Delete trainings on several nodes whose runs have ended, cancelled ones above all.

    A training without an owner, as `yanmo launch` in a shell makes it, is left alone.
    """

    dry_run: bool = opt(False, "say what would be deleted; delete nothing", often=True)
