"""How a run of a channel ended that never said so: KFP or Kubernetes knows."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

from yanmo.nights.index import publish, rows_shown
from yanmo.nights.night import BEGUN, DONE, TERMINATED, Row, Words
from yanmo.nights.record import FAILED, RUN, Run, StageEnd, read_record, record_end
from yanmo.store.objects import ObjectStore
from yanmo_pipelines.cluster.follow import was_terminated
from yanmo_pipelines.cluster.jobs import how_job_ended
from yanmo_pipelines.cluster.kfp_api import KfpApi
from yanmo_pipelines.cluster.kubernetes_api import KubernetesApi
from yanmo_pipelines.cluster.refusals import NotFound
from yanmo_pipelines.cluster.status.of_store import with_nights

log = logging.getLogger(__name__)
_ENDS = {"SUCCEEDED": DONE, "SKIPPED": DONE, "CANCELED": TERMINATED, "FAILED": FAILED}
_SAID = {
    DONE: Words("It ended well, by KFP or Kubernetes.", "据 KFP 或 Kubernetes，正常结束。"),
    FAILED: Words(
        "It failed, by KFP or Kubernetes; its log says why.", "据 KFP 或 Kubernetes，已失败；原因见其日志。"
    ),
    TERMINATED: Words("It was terminated by hand.", "被人终止。"),
}
"""How somebody else says that a run ended -> in words."""
Ask = Callable[[str], str]
"""Id of a run -> one of `_SAID`; "" where it goes on, or nobody knows."""


def settle_runs(
    store: ObjectStore, channel: str, kfp: KfpApi | None, kubernetes: KubernetesApi | None
) -> None:
    """Enter how runs of the channel, or of all channels, ended that never said so.

    Raises:
        OSError, ValueError, RuntimeError: whoever is asked does not answer, or the store refuses a write.
    """
    ask = _asking(kfp, kubernetes)
    for each in with_nights(store, channel):
        for row in rows_shown(store, each):
            if row.state == BEGUN:
                _settle(store, each, row, ask)


def _settle(store: ObjectStore, channel: str, row: Row, ask: Ask) -> None:
    """Enter how a run ended that goes on in the index; the index may be behind its record."""
    record = read_record(store, channel, row.run_id)
    if record is None:
        return
    if record.state == BEGUN:
        said = ask(row.run_id)
        if not said:
            return
        log.info("night of %s (run %s): %s", row.date, row.run_id, _SAID[said].en)
        run = Run(
            store=store,
            channel=channel,
            run_id=row.run_id,
            timezone=record.timezone,
            last=record.last,
        )
        record = record_end(run, StageEnd(task=RUN, state=said, sentence=_SAID[said]))
    publish(store, record)


def _asking(kfp: KfpApi | None, kubernetes: KubernetesApi | None) -> Ask:
    """Return who is asked: a run of a pipeline has KFP's id, that of a Job is the Job's own."""
    jobs: list[Mapping[str, Any]] | None = None

    def ask(run_id: str) -> str:
        nonlocal jobs
        if kfp is not None:
            try:
                run = kfp.run(run_id)
                return TERMINATED if was_terminated(run) else _ENDS.get(str(run.get("state")), "")
            except NotFound:
                pass
        if kubernetes is None:
            return ""
        if jobs is None:
            path = kubernetes.in_namespace("jobs", group="apis/batch/v1")
            jobs = list(kubernetes.listed(path, "list Jobs"))
        job = next((one for one in jobs if one["metadata"].get("uid") == run_id), None)
        return {"Complete": DONE, "Failed": FAILED}.get(how_job_ended(job)[0], "") if job else ""

    return ask
