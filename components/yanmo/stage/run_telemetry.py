"""What a stage shows of its process on /metrics, whatever its work is: workers, disk, GPUs."""

from __future__ import annotations

import functools
import os
import shutil

from yanmo.common import fork_server
from yanmo.common.made_by import code
from yanmo.options.shared import StageOptions
from yanmo.stage.declaration import Stage
from yanmo.stage.exporter import Telemetry
from yanmo.stage.gpu import GpuMetrics
from yanmo.stage.gpu_metrics import GPU_METRICS
from yanmo.stage.sampling import Sampler
from yanmo.store.opening import local_folder
from yanmo.store.settings import StoreSettings


def telemetry_of(stage: Stage, options: StageOptions) -> Telemetry:
    """Return the metrics of `stage`; as a context, served from now on as its options say: once in a pod."""
    is_first = os.environ.get("LOCAL_RANK", "0") in ("", "0")
    telemetry = Telemetry(
        stage.name,
        stage.metrics,
        run_id=options.run_id,
        port=options.metrics_port if is_first else -1,
        everywhere=options.metrics_address == "all",
        wait_seconds=options.metrics_wait_seconds,
    )
    telemetry.info(version=code(), channel=options.channel)
    disk = Sampler(functools.partial(_disk_of, options))

    def measure() -> None:
        telemetry.set("workers", fork_server.count(), room="stage")
        usage = disk.latest()
        size = usage and usage.used + usage.free  # without what is kept for root
        for name, value in (("disk_bytes", size), ("disk_free_bytes", usage and usage.free)):
            if value is None:
                telemetry.gone(name, room="stage")
            else:
                telemetry.set(name, value, room="stage")

    telemetry.source(measure, lasts=True)
    if options.gpu_metrics and telemetry.is_served and GPU_METRICS[0] in stage.metrics:
        GpuMetrics(telemetry).start()
    return telemetry


def _disk_of(options: StageOptions) -> shutil._ntuple_diskusage:
    """Of the disk that holds the work in progress: the store's own where it is a folder."""
    own = local_folder(options.store) if options.store else None
    folder = own or StoreSettings.of(options).scratch_folder
    here = (place for place in (folder.absolute(), *folder.absolute().parents) if place.exists())
    return shutil.disk_usage(next(here))
