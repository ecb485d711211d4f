"""How a run of a channel ended that never said so: KFP or Kubernetes knows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from yanmo.nights.night import DONE, TERMINATED
from yanmo.nights.overdue import GOES_ON, Ask, settle
from yanmo.nights.record import FAILED
from yanmo.store.objects import ObjectStore
from yanmo_pipelines.cluster.follow import was_terminated
from yanmo_pipelines.cluster.jobs import how_job_ended
from yanmo_pipelines.cluster.kfp_api import KfpApi
from yanmo_pipelines.cluster.kubernetes_api import KubernetesApi
from yanmo_pipelines.cluster.refusals import NotFound
from yanmo_pipelines.cluster.status.of_store import with_nights

_ENDS = {"SUCCEEDED": DONE, "SKIPPED": DONE, "CANCELED": TERMINATED, "FAILED": FAILED}


def settle_runs(
    store: ObjectStore, channel: str, kfp: KfpApi | None, kubernetes: KubernetesApi | None
) -> None:
    """Enter how runs of the channel, or of all channels, ended that never said so.

    Raises:
        OSError, ValueError, RuntimeError: whoever is asked does not answer, or the store refuses a write.
    """
    for each in with_nights(store, channel):
        settle(store, each, ask=_asking(kfp, kubernetes))


def _asking(kfp: KfpApi | None, kubernetes: KubernetesApi | None) -> Ask:
    """A run of a pipeline has KFP's id, that of a Job is the Job's own."""
    jobs: list[Mapping[str, Any]] | None = None

    def ask(run_id: str) -> str:
        nonlocal jobs
        if kfp is not None:
            try:
                run = kfp.run(run_id)
                return TERMINATED if was_terminated(run) else _ENDS.get(str(run.get("state")), GOES_ON)
            except NotFound:
                pass
        if kubernetes is None:
            return ""
        if jobs is None:
            jobs = list(
                kubernetes.listed(kubernetes.in_namespace("jobs", group="apis/batch/v1"), "list Jobs")
            )
        job = next((one for one in jobs if one["metadata"].get("uid") == run_id), None)
        return {"Complete": DONE, "Failed": FAILED}.get(how_job_ended(job)[0], GOES_ON) if job else ""

    return ask
