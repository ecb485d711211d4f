"""The dashboard of a run: how far, how well, how fast, what it needs, what is wrong."""

from __future__ import annotations

from panels import (
    ALERTS,
    ALERTS_NOW,
    BUCKET,
    CHANNEL,
    GPU,
    NAMESPACE,
    RANK,
    RUN,
    RUN_INFO,
    STATES,
    WITHIN,
    Dashboard,
    Panel,
    Query,
    Row,
    joined,
    last,
    of_run,
    rate,
)

_OF_RANK = '{rank=~"$rank"}'
_BY_RANK = "rank {{rank}} · {{run_id}}"
_BY_LAYER = "layer {{layer}} · {{run_id}}"
_BY_GPU = "GPU {{gpu}} · {{run_id}}"
_BY_STAGE = "{{stage}} · {{run_id}}"
_WAITING = "yanmo:stage_waiting_seconds:max"
_STATE = " or ".join(
    f'{number} * yanmo_stage_state{{state="{state.replace(" ", "_")}"}}'
    for number, state in enumerate(STATES, 1)
)


def _one(title: str, expression: str, legend: str = "{{run_id}}", **more: object) -> Panel:
    """A panel with one query."""
    return Panel(title=title, queries=(Query(expression, legend),), **more)  # type: ignore[arg-type]


def _of_each_stage(name: str) -> str:
    """A metric that has the stage in its name, of all stages."""
    found = f'last_over_time({{__name__=~"yanmo_[a-z]+_{name}"}}{WITHIN})'
    return joined(f'label_replace({found}, "stage", "$1", "__name__", "yanmo_([a-z]+)_.+")')


PROGRESS = Row(
    title="Progress",
    panels=(
        _one(
            "Steps done",
            of_run("(yanmo_train_step / yanmo_train_steps)"),
            kind="stat",
            unit="percentunit",
            width=4,
            height=4,
            most=1.0,
        ),
        _one("Step", of_run("yanmo_train_step"), kind="stat", width=4, height=4),
        _one(
            "Time left",
            of_run("yanmo_train_seconds_left"),
            kind="stat",
            unit="s",
            width=4,
            height=4,
            about="At the speed of now; nothing while no rank gives a sign of life.",
        ),
        _one(
            "Since the last step",
            of_run("yanmo_train_last_step_age_seconds"),
            kind="stat",
            unit="s",
            width=4,
            height=4,
            limits=((0, "green"), (60, "yellow"), (600, "red")),
            about="YanmoTrainStalled watches it.",
        ),
        _one(
            "Validation: bits per character",
            of_run('yanmo_train_valid_bits_per_character{genre="mean"}'),
            kind="stat",
            width=4,
            height=4,
            about="Mean over genres.",
        ),
        ALERTS_NOW,
        _one(
            "What the stages do",
            of_run(f"sum without (state) ({_STATE})", "stage"),
            _BY_STAGE,
            kind="states",
            width=16,
        ),
        Panel(
            title="Work of a stage",
            queries=(
                Query(of_run("(yanmo_stage_work_done / yanmo_stage_work)", "stage"), "{{stage}} {{work}}"),
            ),
            unit="percentunit",
            most=1.0,
            about="What it counts now: files, documents, bytes.",
        ),
        _one(
            "Outputs",
            f"sum by (part, result, run_id) ({last('yanmo_stage_outputs_total')})",
            "{{part}} {{result}} · {{run_id}}",
            about="Found in the store, made now, or adopted from another run.",
            kind="bars",
            height=7,
        ),
        Panel(
            title="Work processes",
            queries=(
                Query(of_run("yanmo_stage_workers", "stage"), _BY_STAGE),
                Query(of_run("yanmo_train_ranks"), "ranks · {{run_id}}"),
            ),
        ),
        Panel(
            title="Tries and restarts",
            queries=(
                Query(of_run("yanmo_stage_tries_total", "stage"), "tries of {{stage}} · {{run_id}}"),
                Query(of_run("yanmo_train_restarts_total"), "workers again: {{reason}} · {{run_id}}"),
            ),
            about="YanmoRetries watches both.",
        ),
    ),
)
LEARNING = Row(
    title="Loss and bits",
    panels=(
        Panel(
            title="Loss",
            queries=(
                Query(of_run("yanmo_train_loss"), "{{run_id}}"),
                Query(
                    of_run("(yanmo:train_loss:median30m and on (job, instance) yanmo_train_loss)"),
                    "median of 30 min · {{run_id}}",
                ),
            ),
            least=None,
            about="Nats per token. YanmoTrainLossSpike compares it with the median.",
        ),
        Panel(
            title="Bits per character",
            queries=(
                Query(of_run("yanmo_train_bits_per_character"), "training · {{run_id}}"),
                Query(of_run("yanmo_train_valid_bits_per_character"), "{{genre}} · {{run_id}}"),
            ),
            least=None,
            about="The last interval of the training, and each validation by genre.",
        ),
        _one("Perplexity", of_run("yanmo_train_perplexity"), least=None),
        _one("Gradient norm", of_run("yanmo_train_grad_norm"), about="Before clipping."),
        _one("Learning rate", of_run("yanmo_train_learning_rate"), about="Of the matrices."),
        Panel(
            title="Steps thrown away",
            queries=(
                Query(of_run("yanmo_train_skipped_steps_total"), "skipped · {{run_id}}"),
                Query(of_run("yanmo_train_nonfinite_losses_total"), "loss not finite · {{run_id}}"),
                Query(of_run("yanmo_train_rewinds_total"), "rewinds · {{run_id}}"),
                Query(of_run("yanmo_train_rewound_steps_total"), "rewound steps · {{run_id}}"),
            ),
        ),
    ),
)
SPEED = Row(
    title="Speed, and where the time goes",
    panels=(
        Panel(
            title="Throughput",
            queries=(
                Query(of_run("yanmo_train_tokens_per_second"), "as the training says · {{run_id}}"),
                Query(rate("yanmo_train_tokens_total"), "by the clock · {{run_id}}"),
            ),
            unit="suffix: tokens/s",
            about="By the clock: with what is no step, such as validations and checkpoints.",
        ),
        _one("Rows", of_run("yanmo_train_samples_per_second"), unit="suffix: rows/s"),
        Panel(
            title="MFU",
            queries=(
                Query(of_run("yanmo_train_mfu"), "{{run_id}}"),
                Query(
                    of_run("(yanmo:train_mfu:median6h and on (job, instance) yanmo_train_mfu)"),
                    "median of 6 h · {{run_id}}",
                ),
            ),
            unit="percentunit",
            about="Share of the devices' peak; only where that is known or given (--peak-tflops). "
            "YanmoTrainMfuLow compares it with the median.",
        ),
        Panel(
            title="Arithmetic",
            queries=(
                Query(of_run("yanmo_train_flops_per_second"), "{{run_id}}"),
                Query(of_run("yanmo_train_peak_flops_per_second"), "peak · {{run_id}}"),
            ),
            unit="flops",
        ),
        _one(
            "Where the time of a step goes",
            of_run(
                "(yanmo_train_interval_seconds / ignoring (phase) group_left () "
                "sum without (phase) (yanmo_train_interval_seconds))"
            ),
            "{{phase}} · {{run_id}}",
            kind="stack",
            unit="percentunit",
            most=1.0,
            about="Of the wall time of the last interval.",
        ),
        _one(
            "Waiting for data",
            of_run(
                f"(rate(yanmo_train_data_wait_seconds_total{_OF_RANK}[$__rate_interval]) "
                f"/ (rate(yanmo_train_step_seconds_total{_OF_RANK}[$__rate_interval]) > 0))"
            ),
            _BY_RANK,
            unit="percentunit",
            about="Share of the time in steps. YanmoTrainDataWait watches it.",
        ),
        _one("What the ranks do", of_run("yanmo_train_ranks_doing"), "{{doing}} · {{run_id}}", kind="stack"),
        Panel(
            title="Signs of life",
            queries=(
                Query(of_run(f"yanmo_train_heartbeat_age_seconds{_OF_RANK}"), _BY_RANK),
                Query(of_run("yanmo_stage_work_age_seconds", "stage"), "work of {{stage}} · {{run_id}}"),
            ),
            unit="s",
            about="Age of the last one. YanmoTrainStalled and YanmoStageStalled watch it.",
        ),
        _one(
            "Steps of a rank",
            of_run(f"deriv(yanmo_train_rank_step{_OF_RANK}[$__rate_interval])"),
            _BY_RANK,
            unit="suffix: steps/s",
            about="A rank that falls behind holds up all others.",
        ),
    ),
)
MEMORY = Row(
    title="Memory",
    panels=(
        Panel(
            title="Memory of a rank",
            queries=(
                Query(of_run(f"yanmo_train_memory_bytes{_OF_RANK}"), _BY_RANK),
                Query(of_run(f"yanmo_train_memory_peak_bytes{_OF_RANK}"), f"most, {_BY_RANK}"),
            ),
            unit="bytes",
            width=16,
            about="Of the device, or of the process on a CPU.",
        ),
        Panel(
            title="Short of memory",
            queries=(
                Query(of_run(f"yanmo_train_allocator_retries_total{_OF_RANK}"), f"retries, {_BY_RANK}"),
                Query(of_run("yanmo_train_out_of_memory_total"), "micro batch did not fit · {{run_id}}"),
            ),
            about="YanmoTrainMemory watches both.",
        ),
    ),
)
CHECKPOINTS = Row(
    title="Checkpoints",
    panels=(
        _one(
            "What would be lost now",
            of_run("yanmo_train_checkpoint_age_seconds"),
            unit="s",
            limits=((0, "green"), (3600, "red")),
            about="Age of the newest whole checkpoint. YanmoCheckpointTooOld watches it.",
        ),
        _one("Step of the newest", of_run("yanmo_train_checkpoint_step")),
        _one(
            "Time to write one",
            of_run("yanmo_train_checkpoint_write_seconds"),
            unit="s",
            about="Beside the training.",
        ),
        _one("Size", of_run("yanmo_train_checkpoint_bytes"), unit="bytes"),
        Panel(
            title="In the store",
            queries=(
                Query(of_run("yanmo_train_checkpoint_uploaded_step"), "step · {{run_id}}"),
                Query(of_run("yanmo_train_checkpoint_upload_seconds"), "seconds it took · {{run_id}}"),
            ),
            needs=BUCKET,
        ),
        _one("Failures", of_run("yanmo_train_checkpoint_failures_total"), "{{what}} · {{run_id}}"),
    ),
)
HEALTH = Row(
    title="Health of the model",
    is_open=False,
    panels=(
        _one("Gradient by layer", of_run("yanmo_train_layer_grad_norm"), _BY_LAYER, about="Clipped."),
        _one("Update over weight", of_run("yanmo_train_update_to_weight_ratio"), _BY_LAYER),
        _one(
            "Units that are not dormant",
            of_run("yanmo_train_active_units_ratio"),
            _BY_LAYER,
            unit="percentunit",
            about="With --monitor full, as what follows.",
        ),
        _one("Effective rank", of_run("yanmo_train_effective_rank"), _BY_LAYER),
        _one("Entropy of attention", of_run("yanmo_train_attention_entropy_ratio"), _BY_LAYER),
        _one("Entropy of the predictions", of_run("yanmo_train_output_entropy_ratio")),
    ),
)
GPUS = Row(
    title="GPU",
    is_open=False,
    panels=(
        _one(
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
        _one(
            "Temperature",
            of_run("yanmo_gpu_temperature_celsius"),
            _BY_GPU,
            unit="celsius",
            limits=((0, "green"), (85, "red")),
            needs=GPU,
            about="YanmoGpuHot watches it.",
        ),
        _one(
            "Clocks",
            of_run("yanmo_gpu_clock_hertz"),
            "{{clock}}, GPU {{gpu}} · {{run_id}}",
            unit="hertz",
            needs=GPU,
        ),
        _one(
            "Held back",
            of_run("(yanmo_gpu_throttled > 0)"),
            "{{reason}}, GPU {{gpu}} · {{run_id}}",
            needs=GPU,
            most=1.0,
        ),
        _one(
            "PCIe",
            of_run("yanmo_gpu_pcie_bytes_per_second"),
            "{{direction}}, GPU {{gpu}} · {{run_id}}",
            unit="Bps",
            needs=GPU,
        ),
        _one(
            "NVLink",
            rate("yanmo_gpu_nvlink_bytes_total"),
            "{{direction}}, GPU {{gpu}} · {{run_id}}",
            unit="Bps",
            needs="needs GPUs with NVLink",
        ),
        _one(
            "Errors of the driver",
            of_run("yanmo_gpu_xid_errors_total"),
            "XID {{xid}}, GPU {{gpu}} · {{run_id}}",
            needs="needs a GPU with a fault",
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
        _one(
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
        _one(
            "Requests",
            f"sum by (kind, run_id) ({rate('yanmo_store_requests_total')}) > 0",
            "{{kind}} · {{run_id}}",
            unit="reqps",
            about="Of a stage's own process, its workers' not counted.",
        ),
        _one(
            "Bytes",
            f"sum by (kind, run_id) ({rate('yanmo_store_bytes_total')}) > 0",
            "{{kind}} · {{run_id}}",
            unit="Bps",
        ),
        _one(
            "Time of a request",
            f"sum by (kind, run_id) ({rate('yanmo_store_request_seconds_total')}) "
            f"/ (sum by (kind, run_id) ({rate('yanmo_store_requests_total')}) > 0)",
            "{{kind}} · {{run_id}}",
            unit="s",
        ),
        _one(
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
        _one(
            "Energy",
            _of_each_stage("energy_joules"),
            "{{device}}, {{stage}} · {{run_id}}",
            unit="joule",
            needs="needs a GPU, or a processor that counts its energy (RAPL)",
            kind="bars",
            height=9,
        ),
        _one(
            "Path of the attention", of_run("yanmo_train_attention_info"), "{{path}}", kind="table", height=9
        ),
        _one(
            "Alerts that fire",
            ALERTS,
            "{{alertname}} {{severity}}",
            kind="table",
            width=24,
            height=5,
            about="At the end of the time that is shown.",
        ),
        _one(
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

TRAINING_RUN = Dashboard(
    name="run",
    title="Yanmo: a run",
    about="One run of the pipeline, live: progress and time left, loss and bits, speed, memory, GPU, data, "
    "store, alerts. Docs: docs/dashboards.md.",
    variables=(NAMESPACE, CHANNEL, RUN, RANK),
    rows=(PROGRESS, LEARNING, SPEED, MEMORY, CHECKPOINTS, HEALTH, GPUS, DATA, STORE, COST),
    since="now-3h",
    refresh="15s",
)
