"""`yanmo submit`: a pipeline run in KFP, from the check of its form to its verdict."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from yanmo.common.answers import answer
from yanmo.common.command_end import as_process, ended
from yanmo.common.errors import ExitCode
from yanmo.common.logs import setup
from yanmo.common.names import name_problems
from yanmo.common.words import plural
from yanmo.options.command_line import load
from yanmo.options.fields import default_argv, opt
from yanmo_pipelines.cluster.follow import follow
from yanmo_pipelines.cluster.kfp_api import KfpApi
from yanmo_pipelines.cluster.kubernetes_api import KubernetesApi, NoCluster
from yanmo_pipelines.cluster.place import PlaceOptions, run_link
from yanmo_pipelines.cluster.plan import Plan, planned
from yanmo_pipelines.cluster.refusals import NoAnswer
from yanmo_pipelines.compile import PIPELINES
from yanmo_pipelines.pod_options import PodOptions

log = logging.getLogger(__name__)

_MOST_NAME = 128
"""Characters of an experiment's name: KFP's server refuses more. A run's it takes longer; nobody reads it."""


@dataclass(frozen=True, kw_only=True)
class SubmitOptions(PlaceOptions, PodOptions, group="submit"):
    """Run a pipeline in KFP: check its form, upload it unless it is there, follow it to its verdict.

    Exit code: 0, that of the stage that failed, 75 where it was terminated or nobody answers, 78 where the
    cluster lacks something.
    """

    pipeline: str = opt(
        "language_model",
        f"{', '.join(PIPELINES)}, or the path of a compiled YAML",
        metavar="NAME",
        often=True,
    )
    channel: str = opt(
        "",
        "name of a series of runs, such as nightly; default: that of the form",
        variable="YANMO_CHANNEL",
        often=True,
    )
    store: str = opt(
        "",
        "where the run's outputs are stored, as its pods see it, s3://bucket/prefix; default: what the "
        "Secret yanmo-store says, else KFP's own bucket",
        often=True,
    )
    set: tuple[str, ...] = opt(
        (),
        "a field of the run form (train_steps=100) or any option of a stage (train.layers=4); may be given "
        "many times",
        metavar="NAME=VALUE",
        often=True,
    )
    experiment: str = opt("Default", "experiment of KFP's that the run belongs to; made if it is not there")
    name: str = opt("", "the run's name in KFP; default: pipeline, channel and time")
    service_account: str = opt("", "service account of the run's pods; default: KFP's own")
    detach: bool = opt(False, "do not follow the run: end as soon as it is submitted", often=True)
    follow: str = opt(
        "", "follow a run that was submitted before, by its id, and submit nothing", metavar="ID", often=True
    )

    def contradictions(self) -> list[str]:
        found = []
        if self.follow and self.detach:
            found.append("--follow and --detach contradict: expected one of them")
        for flag, name in (("--name", self.name), ("--experiment", self.experiment)):
            if len(name) > _MOST_NAME:
                found.append(f"{flag}: {plural(len(name), 'character')}; give at most {_MOST_NAME}")
        return found + (name_problems("--channel", self.channel) if self.channel else [])


def main(argv: Sequence[str] | None = None) -> int:
    """Submit and follow the run that the command line describes; returns the exit code."""

    def serve() -> int:
        options = load(SubmitOptions, default_argv(argv), "yanmo submit")
        setup(options.log_level, "submit", options.log_format)
        own = {"store": options.store, "channel": options.channel}
        plan = None if options.follow else planned(options.pipeline, options.set, own, options)
        kubernetes = cluster_if_any(options)
        api = KfpApi(options, kubernetes)
        run_id = _submitted(api, plan, options) if plan else str(api.run(options.follow)["run_id"])
        link = run_link(options, run_id, bool(options.ui) or api.is_a_page())
        answer(f"run   {run_id}\nlink  {link}")
        if options.detach:
            return ExitCode.DONE
        return _left_running(lambda: follow(api, run_id, kubernetes, options.look_seconds), run_id)

    return ended("submit", serve, "nothing was submitted")


def cluster_if_any(options: PlaceOptions) -> KubernetesApi | None:
    """The cluster, where one is known here; a run can be submitted without."""
    try:
        return KubernetesApi.of(options)
    except NoCluster as error:
        if options.context:
            raise
        log.debug("%s", error)
        return None


def _submitted(api: KfpApi, plan: Plan, options: SubmitOptions) -> str:
    """Upload, and create the run; its id."""
    version = api.upload(plan.name, plan.version, plan.text, plan.about)
    run = {
        "display_name": options.name or _default_name(plan),
        "description": f"yanmo submit, version {plan.version}",
        "experiment_id": api.experiment_id(options.experiment),
        "pipeline_version_reference": version,
        "runtime_config": {"parameters": dict(plan.values)},
        "service_account": options.service_account,
    }
    try:
        return str(api.create_run(run)["run_id"])
    except NoAnswer as error:  # it may have come through: a second one would do the work twice
        raise NoAnswer(f"{error}; look first whether KFP has the run") from error


def _default_name(plan: Plan) -> str:
    parts = (plan.name, plan.channel, f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S}")
    name = " ".join(filter(None, parts))
    return name if len(name) <= _MOST_NAME else name[-_MOST_NAME:]


def _left_running(follow: Callable[[], int], run_id: str) -> int:
    """The exit code of `follow`, 130 after Ctrl-C; whatever ends the command leaves the run alone.

    Raises:
        NoAnswer: as `follow` does, and how to follow it again.
    """
    again = f"the run goes on; follow it again by `yanmo submit --follow {run_id}`"
    try:
        return follow()
    except NoAnswer as error:
        raise NoAnswer(f"{error}; {again}") from error
    except KeyboardInterrupt:
        log.warning("interrupted; %s", again)
        return 130
    except SystemExit:  # SIGTERM
        log.warning("stopped; %s", again)
        raise


if __name__ == "__main__":
    as_process(main)
