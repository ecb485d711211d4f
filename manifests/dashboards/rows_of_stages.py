"""What the dashboard of a run shows of every stage: GPUs, store, cost."""

from __future__ import annotations

from panels import ALERTS, GPU, RUN_INFO, WITHIN, Panel, Query, Row, joined, of_run, one, rate

_BY_GPU = "GPU {{gpu}} · {{run_id}}"
_WAITING = "yanmo:stage_waiting_seconds:max"


def _of_each_stage(name: str) -> str:
    """A metric that has the stage in its name, of all stages."""
    found = f'last_over_time({{__name__=~"yanmo_[a-z]+_{name}"}}{WITHIN})'
    return joined(f'label_replace({found}, "stage", "$1", "__name__", "yanmo_([a-z]+)_.+")')


GPUS = Row(
    title="GPU",
    is_open=False,
    panels=(
        one(
            "Utilization",
            of_run("yanmo_gpu_utilization_ratio"),
            _BY_GPU,
            unit="percentunit",
            most=1.0,
            needs=GPU,
            about="Share of the time with any kernel; MFU says how full it was.",
        ),
        Panel(
            title="Memory of a GPU",
            queries=(
                Query(of_run("yanmo_gpu_memory_used_bytes"), _BY_GPU),
                Query(of_run("yanmo_gpu_memory_bytes"), f"all, {_BY_GPU}"),
            ),
            unit="bytes",
            needs=GPU,
        ),
        Panel(
            title="Power",
            queries=(
                Query(of_run("yanmo_gpu_power_watts"), _BY_GPU),
                Query(of_run("yanmo_gpu_power_limit_watts"), f"limit, {_BY_GPU}"),
                Query(rate("yanmo_gpu_energy_joules_total"), f"by its energy, {_BY_GPU}"),
            ),
            unit="watt",
            needs=GPU,
        ),
        one(
            "Temperature",
            of_run("yanmo_gpu_temperature_celsius"),
            _BY_GPU,
            unit="celsius",
            limits=((0, "green"), (85, "red")),
            needs=GPU,
            about="YanmoGpuHot watches it.",
        ),
        one(
            "Held back",
            of_run("(yanmo_gpu_throttled > 0)"),
            "{{reason}}, GPU {{gpu}} · {{run_id}}",
            needs=GPU,
            most=1.0,
        ),
    ),
)
STORE = Row(
    title="Store and disk",
    panels=(
        one(
            "Requests made again",
            f"sum by (kind, run_id) ({of_run('yanmo_store_retries_total')}) > 0",
            "{{kind}} · {{run_id}}",
            about="YanmoStoreErrors watches it.",
        ),
        Panel(
            title="Waiting",
            queries=(
                Query(of_run(f"({_WAITING} > 0)", "stage"), "now, {{stage}} · {{run_id}}"),
                Query(
                    _of_each_stage("waited_seconds_total"), "so far, {{stage}} for {{reason}} · {{run_id}}"
                ),
            ),
            unit="s",
            about="For the store, for another run of the same output, between tries.",
        ),
        Panel(
            title="Disk of the work in progress",
            queries=(
                Query(of_run("yanmo_stage_disk_free_bytes", "stage"), "free, {{stage}} · {{run_id}}"),
                Query(of_run("yanmo_stage_disk_bytes", "stage"), "all, {{stage}} · {{run_id}}"),
            ),
            unit="bytes",
            about="YanmoDiskNearlyFull watches it.",
        ),
    ),
)
COST = Row(
    title="Cost and alerts",
    panels=(
        Panel(
            title="Cost of the stages",
            queries=(
                Query(_of_each_stage("duration_seconds"), "wall, {{stage}} · {{run_id}}"),
                Query(_of_each_stage("cpu_seconds"), "CPU, {{stage}} · {{run_id}}"),
            ),
            unit="s",
            about="Once a stage has ended.",
            kind="bars",
            height=9,
        ),
        one(
            "Energy",
            _of_each_stage("energy_joules"),
            "{{device}}, {{stage}} · {{run_id}}",
            unit="joule",
            needs=GPU,
            kind="bars",
            height=9,
        ),
        one(
            "Alerts that fire",
            ALERTS,
            "{{alertname}} {{severity}}",
            kind="table",
            width=24,
            height=5,
            about="At the end of the time that is shown.",
        ),
        one(
            "What was run",
            RUN_INFO,
            "{{stage}} of {{run_id}}",
            kind="table",
            width=24,
            about="Keys of outputs and models, digest of the options, version of Yanmo; of what runs at "
            "the end of the time that is shown.",
        ),
    ),
)
