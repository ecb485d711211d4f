"""The dashboard of a run: how a training goes and what it needs; below that, what is of all stages."""

from __future__ import annotations

from panels import (
    ALERTS_NOW,
    CHANNEL,
    NAMESPACE,
    RANK,
    RUN,
    STATES,
    Dashboard,
    Panel,
    Query,
    Row,
    last,
    of_run,
    one,
    rate,
)
from rows_of_stages import COST, GPUS, STORE

_OF_RANK = '{rank=~"$rank"}'
_BY_RANK = "rank {{rank}} · {{run_id}}"
_BY_LAYER = "layer {{layer}} · {{run_id}}"
_BY_STAGE = "{{stage}} · {{run_id}}"
_STATE = " or ".join(
    f'{number} * yanmo_stage_state{{state="{state.replace(" ", "_")}"}}'
    for number, state in enumerate(STATES, 1)
)


PROGRESS = Row(
    title="Progress",
    panels=(
        one(
            "Steps done",
            of_run("(yanmo_train_step / yanmo_train_steps)"),
            kind="stat",
            unit="percentunit",
            width=4,
            height=4,
            most=1.0,
        ),
        one("Step", of_run("yanmo_train_step"), kind="stat", width=4, height=4),
        one(
            "Time left",
            of_run("yanmo_train_seconds_left"),
            kind="stat",
            unit="s",
            width=4,
            height=4,
            about="At the speed of now; nothing while no rank gives a sign of life.",
        ),
        one(
            "Since the last step",
            of_run("yanmo_train_last_step_age_seconds"),
            kind="stat",
            unit="s",
            width=4,
            height=4,
            limits=((0, "green"), (60, "yellow"), (600, "red")),
            about="YanmoTrainStalled watches it.",
        ),
        one(
            "Validation: bits per character",
            of_run('yanmo_train_valid_bits_per_character{genre="mean"}'),
            kind="stat",
            width=4,
            height=4,
            about="Mean over genres.",
        ),
        ALERTS_NOW,
        one(
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
        one(
            "Outputs",
            f"sum by (part, result, run_id) ({last('yanmo_stage_outputs_total')})",
            "{{part}} {{result}} · {{run_id}}",
            about="Found in the store, made now, or adopted from another run.",
            kind="bars",
            height=7,
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
        one("Gradient norm", of_run("yanmo_train_grad_norm"), about="Before clipping."),
        one("Learning rate", of_run("yanmo_train_learning_rate"), about="Of the matrices."),
        Panel(
            title="Steps thrown away",
            queries=(
                Query(of_run("yanmo_train_skipped_steps_total"), "skipped · {{run_id}}"),
                Query(of_run("yanmo_train_rewinds_total"), "rewinds · {{run_id}}"),
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
        one(
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
        one(
            "Waiting for data",
            of_run(
                f"(rate(yanmo_train_data_wait_seconds_total{_OF_RANK}[$__rate_interval]) "
                f"/ (rate(yanmo_train_step_seconds_total{_OF_RANK}[$__rate_interval]) > 0))"
            ),
            _BY_RANK,
            unit="percentunit",
            about="Share of the time in steps. YanmoTrainDataWait watches it.",
        ),
        one("What the ranks do", of_run("yanmo_train_ranks_doing"), "{{doing}} · {{run_id}}", kind="stack"),
        Panel(
            title="Signs of life",
            queries=(
                Query(of_run(f"yanmo_train_heartbeat_age_seconds{_OF_RANK}"), _BY_RANK),
                Query(of_run("yanmo_stage_work_age_seconds", "stage"), "work of {{stage}} · {{run_id}}"),
            ),
            unit="s",
            about="Age of the last one. YanmoTrainStalled and YanmoStageStalled watch it.",
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
        one(
            "What would be lost now",
            of_run("yanmo_train_checkpoint_age_seconds"),
            unit="s",
            about="Age of the newest whole checkpoint. YanmoCheckpointTooOld watches it.",
        ),
        one(
            "Time to write one",
            of_run("yanmo_train_checkpoint_write_seconds"),
            unit="s",
            about="Beside the training.",
        ),
        one("Failures", of_run("yanmo_train_checkpoint_failures_total"), "{{what}} · {{run_id}}"),
    ),
)
HEALTH = Row(
    title="Health of the model",
    is_open=False,
    panels=(
        one("Gradient by layer", of_run("yanmo_train_layer_grad_norm"), _BY_LAYER, about="Clipped."),
        one("Update over weight", of_run("yanmo_train_update_to_weight_ratio"), _BY_LAYER),
        one(
            "Units that are not dormant",
            of_run("yanmo_train_active_units_ratio"),
            _BY_LAYER,
            unit="percentunit",
            about="With --monitor full, as what follows.",
        ),
        one("Effective rank", of_run("yanmo_train_effective_rank"), _BY_LAYER),
        one("Entropy of attention", of_run("yanmo_train_attention_entropy_ratio"), _BY_LAYER),
        one("Entropy of the predictions", of_run("yanmo_train_output_entropy_ratio")),
    ),
)
TRAINING_RUN = Dashboard(
    name="run",
    title="Yanmo: a run",
    about="One run of the pipeline, live: progress and time left, loss and bits, speed, memory, GPU, store, "
    "alerts. Docs: docs/how-to/watch.md.",
    variables=(NAMESPACE, CHANNEL, RUN, RANK),
    rows=(PROGRESS, LEARNING, SPEED, MEMORY, CHECKPOINTS, HEALTH, GPUS, STORE, COST),
    since="now-3h",
    refresh="15s",
)
