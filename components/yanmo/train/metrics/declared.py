"""What train serves on /metrics; the supervisor sets it from what its workers leave in files (gauges.py)."""

from __future__ import annotations

from yanmo.stage.declaration import GENRE, RANK, Label, Metric
from yanmo.stage.shared_metrics import GPU_METRICS

DOINGS = (
    *("starting", "training", "validation", "checkpoint", "loading", "rewinding", "writing the model"),
    "waiting",
)
"""What a rank can be doing, in few words."""
RESTARTS = ("smaller micro batch", "another try")
"""Why the workers were started again by this process."""
_PHASE = Label(
    name="phase", about="part of a training step, or what else time went to", zh="训练步的各部分等"
)
_LAYER = Label(name="layer", about="layer of the model", zh="模型的层", most=256)

PROGRESS = (
    Metric(name="step", help="Optimizer steps done", zh="已完成的优化步数", final=True),
    Metric(name="steps", help="Optimizer steps in all", zh="优化步的总数", final=True),
    Metric(
        name="last_step_age_seconds",
        help="Seconds since a step ended, or since the workers were started; it grows while nothing moves",
        zh="距上一步结束（或距工作进程启动）的秒数；停滞时不断增长",
        alert="YanmoTrainStalled",
    ),
    Metric(
        name="seconds_left",
        help="Seconds until the last step at this speed",
        zh="按当前速度到最后一步的秒数",
    ),
    Metric(
        name="tokens",
        kind="counter",
        help="Predicted tokens trained on",
        zh="训练过的被预测词元数",
        final=True,
    ),
    Metric(
        name="tokens_per_second",
        help="Tokens trained on per second",
        zh="每秒训练的词元数",
    ),
    Metric(
        name="mfu",
        help="Share of the devices' peak FLOP/s; absent where that is neither known nor given",
        zh="占设备峰值每秒浮点次数的比例；峰值未知且未给出时没有",
        alert="YanmoTrainMfuLow",
    ),
    Metric(
        name="interval_seconds",
        help="Wall seconds of the last interval by what they went to",
        zh="上一区间的挂钟秒数，按去向",
        labels=(_PHASE,),
    ),
)
QUALITY = (
    Metric(
        name="loss",
        help="Loss of the last interval, nats per token",
        zh="上一区间的损失，每词元的奈特数",
        alert="YanmoTrainLossSpike",
    ),
    Metric(
        name="bits_per_character",
        help="Training loss of the last interval, bits per character",
        zh="上一区间的训练损失，每字符比特数",
    ),
    Metric(
        name="valid_bits_per_character",
        help="Validation bits per character",
        zh="验证集的每字符比特数",
        labels=(GENRE,),
        final=True,
    ),
    Metric(name="learning_rate", help="Learning rate of the matrices", zh="矩阵参数的学习率"),
    Metric(
        name="grad_norm",
        help="Norm of the gradient before clipping",
        zh="截断前的梯度范数",
        alert="YanmoTrainGradientNorm",
    ),
    Metric(
        name="layer_grad_norm",
        help="Norm of a layer's gradient, clipped",
        zh="一层的梯度范数，截断后",
        labels=(_LAYER,),
    ),
    Metric(
        name="update_to_weight_ratio",
        help="Norm of an update over that of the weights",
        zh="更新量的范数与权重范数之比",
        labels=(_LAYER,),
    ),
    Metric(
        name="active_units_ratio",
        help="Share of feed-forward units that are not dormant",
        zh="前馈单元中未休眠的占比",
        labels=(_LAYER,),
    ),
    Metric(
        name="effective_rank",
        help="Effective rank of the hidden states",
        zh="隐藏状态的有效秩",
        labels=(_LAYER,),
    ),
    Metric(
        name="attention_entropy_ratio",
        help="Entropy of attention over that of uniform attention",
        zh="注意力的熵与均匀注意力的熵之比",
        labels=(_LAYER,),
    ),
    Metric(
        name="output_entropy_ratio",
        help="Entropy of the predictions over that of a uniform guess",
        zh="预测的熵与均匀猜测的熵之比",
    ),
    Metric(
        name="skipped_steps",
        kind="counter",
        help="Steps that moved no weight: loss or gradient not finite",
        zh="未更新权重的步数：损失或梯度不是有限数",
        alert="YanmoTrainNonFinite",
    ),
    Metric(
        name="rewinds",
        kind="counter",
        help="Returns to an earlier checkpoint",
        zh="退回更早检查点的次数",
        final=True,
    ),
)
RANKS = (
    Metric(name="ranks", help="Ranks on this pod", zh="本 Pod 上的进程数"),
    Metric(
        name="ranks_doing",
        help="Ranks by what they do; a rank that stands still is doing what it did last",
        zh="各进程正在做什么；停住的进程仍按它最后所做的计",
        labels=(Label(name="doing", values=DOINGS),),
    ),
    Metric(
        name="heartbeat_age_seconds",
        help="Seconds since a rank made progress of any kind; it grows while the rank stands still",
        zh="距该进程上次有任何进展的秒数；停住时不断增长",
        labels=(RANK,),
        alert="YanmoTrainStalled",
    ),
    Metric(
        name="step_seconds",
        kind="counter",
        help="Wall time of a rank in training steps",
        zh="该进程在训练步上所用的挂钟时间",
        labels=(RANK,),
        alert="YanmoTrainDataWait",
    ),
    Metric(
        name="data_wait_seconds",
        kind="counter",
        help="Wall time that a rank waited for its rows, a part of the time in steps",
        zh="该进程等待数据行的挂钟时间，包含在训练步时间内",
        labels=(RANK,),
        alert="YanmoTrainDataWait",
    ),
    Metric(
        name="memory_bytes",
        help="Memory of a rank now: the device's, or the process's on a CPU",
        zh="该进程现在的内存：设备的，在 CPU 上则为进程的",
        labels=(RANK,),
    ),
    Metric(
        name="memory_peak_bytes",
        help="Most memory of a rank so far",
        zh="该进程至今最多的内存",
        labels=(RANK,),
    ),
    Metric(
        name="allocator_retries",
        kind="counter",
        help="Times that a rank's GPU allocator had to free its cache to go on",
        zh="该进程的 GPU 分配器须清空缓存才能继续的次数",
        labels=(RANK,),
        alert="YanmoTrainMemory",
    ),
    Metric(
        name="out_of_memory",
        kind="counter",
        help="Times that a micro batch did not fit",
        zh="微批放不下的次数",
        lasts=True,
        alert="YanmoTrainMemory",
    ),
    Metric(
        name="restarts",
        kind="counter",
        help="Times that the workers were started again",
        zh="工作进程被重新启动的次数",
        labels=(Label(name="reason", values=RESTARTS),),
        lasts=True,
        alert="YanmoRetries",
    ),
)
CHECKPOINTS = (
    Metric(name="checkpoint_step", help="Step of the newest whole checkpoint", zh="最新完整检查点的步数"),
    Metric(
        name="checkpoint_age_seconds",
        help="Seconds since it was whole, or since the training began where there is none",
        zh="距它写完整的秒数；还没有检查点时为距训练开始的秒数",
        alert="YanmoCheckpointTooOld",
    ),
    Metric(
        name="checkpoint_interval_seconds",
        help="Longest time between two of them, as --checkpoint-seconds says; absent where it says none",
        zh="两个检查点之间的最长时间，即 --checkpoint-seconds；未规定时没有",
        alert="YanmoCheckpointTooOld",
    ),
    Metric(
        name="checkpoint_write_seconds",
        help="Wall time that writing it took, beside the training",
        zh="写它所用的挂钟时间，与训练同时进行",
    ),
    Metric(
        name="checkpoint_failures",
        kind="counter",
        help="Checkpoints that could not be written, and tries to upload one that failed",
        zh="未能写成的检查点数，以及上传失败的次数",
        labels=(Label(name="what", values=("write", "upload")),),
        lasts=True,
        alert="YanmoCheckpointTooOld",
    ),
)

METRICS = (*GPU_METRICS, *PROGRESS, *QUALITY, *RANKS, *CHECKPOINTS)
