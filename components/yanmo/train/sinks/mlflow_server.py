"""MLflow: a run on a tracking server, or in a database of this machine (`sqlite:///mlflow.db`)."""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Mapping

os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")  # who calls tries again for as long as it takes
os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "20")

from mlflow.entities import Metric, Param
from mlflow.tracking import MlflowClient

from yanmo.train.sinks.sink import TrainingRun

_EXPERIMENT = "yanmo"
_KEY = "yanmo.key"
"""The tag by which a training finds its run again: MLflow gives runs ids of its own."""
_AT_ONCE, _LONGEST = 100, 5000
"""Parameters in a request, and characters of one."""


class MLflow:
    """One run of the experiment `yanmo`."""

    def __init__(self, target: str) -> None:
        self._client = MlflowClient(tracking_uri=target)

    def begin(self, run: TrainingRun) -> defaultdict[str, int]:
        experiment = self._experiment()
        found = self._client.search_runs([experiment], filter_string=f"tags.`{_KEY}` = '{run.key}'")
        if found:
            self._id = found[0].info.run_id
            self._client.set_terminated(self._id, "RUNNING")
            histories = (self._client.get_metric_history(self._id, name) for name in found[0].data.metrics)
            held = {history[0].key: max(one.step for one in history) for history in histories if history}
            return defaultdict(lambda: -1, held)
        tags = {_KEY: run.key, "yanmo.run_id": run.run_id, "yanmo.channel": run.channel}
        self._id = self._client.create_run(experiment, tags=tags, run_name=run.name).info.run_id
        options = [Param(name, str(value)[:_LONGEST]) for name, value in run.options.items()]
        for start in range(0, len(options), _AT_ONCE):
            self._client.log_batch(self._id, params=options[start : start + _AT_ONCE])
        return defaultdict(lambda: -1)

    def _experiment(self) -> str:
        found = self._client.get_experiment_by_name(_EXPERIMENT)
        return str(found.experiment_id if found else self._client.create_experiment(_EXPERIMENT))

    def write(self, step: int, figures: Mapping[str, float]) -> None:
        now = int(1000 * time.time())
        self._client.log_batch(self._id, metrics=[Metric(n, v, now, step) for n, v in figures.items()])

    def flush(self) -> None:
        """Each write has reached it."""

    def end(self, done: bool) -> None:
        self._client.set_terminated(self._id, "FINISHED" if done else "KILLED")
