"""`yanmo roll DEPLOYMENT`: a Deployment serves the champion of its channel.

Its pods export the model that an annotation of their template names. Where the champion is another one, that
is changed here, and Kubernetes does the rest: new pods beside the old ones, which serve until the new ones
are ready. What a rollback of `yanmo promote` points to is rolled out alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from yanmo.common.answers import answer
from yanmo.common.command_end import as_process, ended
from yanmo.common.errors import EnvironmentFault, ExitCode
from yanmo.common.logs import setup
from yanmo.options.command_line import load
from yanmo.options.fields import default_argv, opt, word
from yanmo.options.shared import StoreOptions
from yanmo.store.opening import default_store, store_of
from yanmo.store.pointers import read_pointer
from yanmo_pipelines.cluster.kubernetes_api import KubernetesApi
from yanmo_pipelines.cluster.place import PlaceOptions
from yanmo_pipelines.cluster.refusals import NotFound

MODEL = "yanmo.dev/model"
"""Annotation of the pods: what `yanmo export` takes for a model."""


@dataclass(frozen=True, kw_only=True)
class RollOptions(PlaceOptions, StoreOptions, group="roll"):
    """Let a Deployment serve the champion of a channel: its pods are replaced if that has moved.

    The old pods serve until the new ones are ready. Exit code: 0, also where nothing has moved; 78 where
    there is no such Deployment.
    """

    deployment: str = word("name of the Deployment in the namespace: yanmo-serve of manifests/")
    store: str = opt(
        "",
        "store of the channel: a folder or s3://bucket/prefix; default: what a mounted Secret says",
        often=True,
        variable="YANMO_STORE",
    )
    channel: str = opt("dev", "channel whose champion is served", often=True, variable="YANMO_CHANNEL")


def main(argv: Sequence[str] | None = None) -> int:
    """Roll one Deployment; returns the exit code."""

    def serve() -> int:
        options = load(RollOptions, default_argv(argv), "yanmo roll")
        setup(options.log_level, "roll", options.log_format)
        answer(_roll(options))
        return ExitCode.DONE

    return ended("roll", serve, "the same command goes on")


def _roll(options: RollOptions) -> str:
    """Return what was done.

    Raises:
        EnvironmentFault: there is no such Deployment.
        DataError: the pointer is damaged.
    """
    champion = read_pointer(store_of(options, options.store or default_store()), options.channel, "champion")
    if champion is None:
        return f"nothing to serve: channel {options.channel} has no champion yet"
    api, name, model = KubernetesApi.of(options), options.deployment, f"train/{champion.key}"
    path = api.in_namespace("deployments", name, group="apis/apps/v1")
    try:
        template = api.get(path, f"read Deployment {name}")["spec"]["template"]
        before = (template["metadata"].get("annotations") or {}).get(MODEL, "")
        if before == model:
            return f"unchanged: Deployment {name} serves {model}"
        changes = {"spec": {"template": {"metadata": {"annotations": {MODEL: model}}}}}
        api.merge(path, f"set the model of Deployment {name}", changes)
    except NotFound:
        raise EnvironmentFault(
            f"there is no Deployment {name} in namespace {api.namespace}: apply the component serve-champion "
            "of manifests/, or give --namespace"
        ) from None
    return f"changed: Deployment {name} serves {model}, before {before or 'none'}"


if __name__ == "__main__":
    as_process(main)
