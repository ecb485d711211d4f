"""What the dashboard of a run shows of every stage: GPUs, data, store, cost."""

from __future__ import annotations

from panels import ALERTS, GPU, RUN_INFO, WITHIN, Panel, Query, Row, joined, last, of_run, one, rate

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
DATA = Row(
    title="Data",
    is_open=False,
    panels=(
        Panel(
            title="Documents of curate",
            queries=(
                Query(last("yanmo_curate_documents_read_total"), "read, {{genre}} · {{run_id}}"),
                Query(last("yanmo_curate_documents_kept_total"), "kept, {{genre}} · {{run_id}}"),
            ),
            kind="bars",
            height=9,
        ),
        Panel(
            title="Dropped by curate",
            queries=(
                Query(last("yanmo_curate_documents_dropped_total"), "{{reason}} · {{run_id}}"),
                Query(last("yanmo_curate_lines_malformed_total"), "lines that are no document · {{run_id}}"),
            ),
            kind="bars",
            height=9,
        ),
        Panel(
            title="Characters",
            queries=(
                Query(last("yanmo_curate_characters_kept_total"), "curate, {{genre}} · {{run_id}}"),
                Query(last("yanmo_balance_characters_kept_total"), "balance, {{genre}} · {{run_id}}"),
            ),
            kind="bars",
            height=9,
        ),
        Panel(
            title="Documents of balance",
            queries=(
                Query(last("yanmo_balance_documents_read_total"), "read, {{genre}} · {{run_id}}"),
                Query(last("yanmo_balance_documents_kept_total"), "written, {{genre}} · {{run_id}}"),
            ),
            kind="bars",
            height=8,
        ),
        one(
            "Times read per epoch",
            last("yanmo_balance_epochs"),
            "{{genre}} · {{run_id}}",
            kind="bars",
            height=8,
        ),
        Panel(
            title="Token cache",
            queries=(
                Query(last("yanmo_tokenize_tokens"), "tokens · {{run_id}}"),
                Query(last("yanmo_tokenize_characters"), "characters · {{run_id}}"),
                Query(last("yanmo_tokenize_documents"), "documents · {{run_id}}"),
            ),
            kind="bars",
            height=8,
        ),
        Panel(
            title="Sizes",
            queries=(
                Query(last("yanmo_curate_source_bytes"), "raw files · {{run_id}}"),
                Query(last("yanmo_tokenize_text_bytes"), "text in the cache · {{run_id}}"),
            ),
            unit="bytes",
            kind="bars",
            height=7,
        ),
        Panel(
            title="How well it segments",
            queries=(
                Query(last("yanmo_tokenize_byte_tokens_ratio"), "tokens that are bytes · {{run_id}}"),
                Query(last("yanmo_tokenize_jieba_boundary_recall_ratio"), "jieba's boundaries · {{run_id}}"),
            ),
            unit="percentunit",
            most=1.0,
            kind="bars",
            height=7,
        ),
        Panel(
            title="Evaluation",
            queries=(
                Query(last("yanmo_evaluate_bits_per_character"), "{{genre}} · {{run_id}}"),
                Query(last("yanmo_evaluate_mean_bits_per_character"), "mean · {{run_id}}"),
            ),
            least=None,
            about="Bits per character of the finished model.",
            kind="bars",
            height=7,
        ),
    ),
)
STORE = Row(
    title="Store and disk",
    panels=(
        one(
            "Requests",
            f"sum by (kind, run_id) ({rate('yanmo_store_requests_total')}) > 0",
            "{{kind}} · {{run_id}}",
            unit="reqps",
            about="Of a stage's own process, its workers' not counted.",
        ),
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
