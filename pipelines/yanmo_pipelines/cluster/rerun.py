"""`yanmo rerun STAGE`: one stage again, as a Job of its own beside KFP, from a template in the cluster."""

from __future__ import annotations

import contextlib
import copy
import re
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from yanmo.common import names
from yanmo.common.answers import answer
from yanmo.common.command_end import as_process, ended
from yanmo.common.errors import EnvironmentFault, ExitCode, UsageError
from yanmo.common.logs import setup
from yanmo.common.names import name_problems
from yanmo.common.words import did_you_mean
from yanmo.options.command_line import load
from yanmo.options.fields import Contradiction, default_argv, opt, word
from yanmo.options.one_line import as_line
from yanmo_pipelines.cluster.kubernetes_api import KubernetesApi
from yanmo_pipelines.cluster.place import PlaceOptions
from yanmo_pipelines.cluster.refusals import NotFound
from yanmo_pipelines.parameters import read_settings

STAGES = (*names.STAGES, "launch")
TAKES_ALSO = {"launch": "train"}
"""Stage -> another one whose options its Job takes as well."""
_RUN = re.compile(r"run:[A-Za-z0-9][A-Za-z0-9._-]{0,99}\Z")
_JOB = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?\Z")


@dataclass(frozen=True, kw_only=True)
class RerunOptions(PlaceOptions, group="rerun"):
    """Run one stage again as a Job, from the CronJob stage-STAGE of manifests/.

    `kubectl logs -f` shows what it says, `yanmo status` how it ended. Exit code: 0 where the Job was made.
    """

    stage: str = word("a stage: " + ", ".join(STAGES))
    inputs: str = opt(
        "",
        "inputs of the stage: latest of the channel, or run:ID: what the run of KFP's (or the Job) with that "
        "id made; default: that of the CronJob",
        often=True,
        metavar="latest|run:ID",
    )
    set: tuple[str, ...] = opt(
        (),
        "an option of the stage (steps=100, or train.steps=100); may be given many times",
        metavar="NAME=VALUE",
        often=True,
    )
    channel: str = opt(
        "",
        "channel whose pointers are read and moved; default: that of the CronJob",
        variable="YANMO_CHANNEL",
        often=True,
    )
    name: str = opt("", "the Job's name; default: rerun-STAGE- and six digits")
    dry_run: bool = opt(False, "print the Job as YAML; start nothing", often=True)

    def contradictions(self) -> tuple[str, ...]:
        found = []
        if self.stage not in STAGES:
            hint = did_you_mean(self.stage, STAGES)
            found.append(f"STAGE {self.stage}: expected one of {', '.join(STAGES)}{hint}")
        if self.inputs not in ("", "latest") and not _RUN.match(self.inputs):
            found.append(f"--inputs {self.inputs}: expected latest or run:ID")
        if self.name and not _JOB.match(self.name):
            found.append(f"--name {self.name[:80]}: expected at most 63 of a to z, 0 to 9 and -")
        found += name_problems("--channel", self.channel) if self.channel else []
        return tuple(found)


def main(argv: Sequence[str] | None = None) -> int:
    """Make the Job that the command line describes; returns the exit code."""

    def serve() -> int:
        options = load(RerunOptions, default_argv(argv), "yanmo rerun")
        setup(options.log_level, "rerun", options.log_format)
        variables = _variables(options)
        api = KubernetesApi.of(options)
        name = options.name or f"rerun-{options.stage}-{uuid.uuid4().hex[:6]}"
        job = job_of(_cron_job(api, options.stage), name, variables)
        if options.dry_run:
            import yaml

            answer(yaml.safe_dump(job, sort_keys=False, allow_unicode=True))
            return ExitCode.DONE
        api.create(api.in_namespace("jobs", group="apis/batch/v1"), f"create Job {name}", job)
        answer(f"job   {name}\nlog   kubectl -n {api.namespace} logs -f job/{name}")
        return ExitCode.DONE

    return ended("rerun", serve, "no Job was made")


def _variables(options: RerunOptions) -> dict[str, str]:
    """Return what the Job's environment says that the CronJob's does not; refused by the stage's own words.

    Raises:
        UsageError: an option that the stage does not have, or a value that it cannot have.
    """
    found = {"YANMO_INPUTS": options.inputs, "YANMO_CHANNEL": options.channel}
    settings = {}
    for name, value in read_settings(options.set).items():
        stage, dot, option = name.rpartition(".")
        if dot and stage not in (options.stage, TAKES_ALSO.get(options.stage)):
            raise UsageError(
                f"--set {name}: expected an option of {options.stage}, such as {options.stage}.{option}"
            )
        settings[f"{stage or options.stage}.{option}"] = value
    from yanmo_pipelines.stages import ON_NODES  # 0.1 s; the names alone are enough for `--help`

    line, configs = as_line(settings), {stage.name: stage.config for stage in ON_NODES}
    for checked in filter(None, (options.stage, TAKES_ALSO.get(options.stage))):
        with contextlib.suppress(Contradiction):  # beside what the CronJob says it may be none
            load(configs[checked], ["--store=store", f"--options={line}"], f"yanmo {checked}")
    found["YANMO_OPTIONS"] = line
    return {name: value for name, value in found.items() if value}


def _cron_job(api: KubernetesApi, stage: str) -> dict[str, Any]:
    path = api.in_namespace("cronjobs", f"stage-{stage}", group="apis/batch/v1")
    try:
        return api.get(path, f"read CronJob stage-{stage}")
    except NotFound:
        raise EnvironmentFault(
            f"there is no CronJob stage-{stage} in namespace {api.namespace}: apply manifests/ there "
            "(kubectl apply -k manifests/overlays/small), or give --namespace"
        ) from None


def job_of(cron_job: Mapping[str, Any], name: str, variables: Mapping[str, str]) -> dict[str, Any]:
    """The Job called `name` as `kubectl create job --from` makes it, but with another environment.

    Its owner is the CronJob, as kubectl does it, and not so that it would hold up the CronJob's deletion, for
    which another right is needed.
    """
    meta, template = cron_job["metadata"], copy.deepcopy(cron_job["spec"]["jobTemplate"])
    container = template["spec"]["template"]["spec"]["containers"][0]
    container["env"] = _with(container.get("env") or [], variables)
    of_template = template.get("metadata") or {}
    annotations = {**(of_template.get("annotations") or {}), "cronjob.kubernetes.io/instantiate": "manual"}
    owner = {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "name": meta["name"],
        "uid": meta.get("uid", ""),
        "controller": True,
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": name,
            "namespace": meta.get("namespace", ""),
            "labels": of_template.get("labels") or {},
            "annotations": annotations,
            "ownerReferences": [owner],
        },
        "spec": template["spec"],
    }


def _with(env: list[dict[str, Any]], variables: Mapping[str, str]) -> list[dict[str, Any]]:
    """The environment with other values; each variable stays before those that name it."""
    found = [
        {"name": one["name"], "value": variables[one["name"]]} if one["name"] in variables else one
        for one in env
    ]
    known = {one["name"] for one in env}
    new = [{"name": name, "value": value} for name, value in variables.items() if name not in known]
    return [*new, *found]


if __name__ == "__main__":
    as_process(main)
