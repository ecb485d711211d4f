"""What evaluate serves on /metrics."""

from __future__ import annotations

from yanmo.stage.gpu_metrics import GPU_METRICS
from yanmo.stage.metric import GENRE, Metric

METRICS = (
    *GPU_METRICS,
    Metric(
        name="bits_per_character",
        help="Bits per character of the model",
        zh="模型的每字符比特数",
        labels=(GENRE,),
        final=True,
    ),
    Metric(
        name="mean_bits_per_character",
        help="Bits per character, mean over genres",
        zh="每字符比特数，各体裁的平均",
        final=True,
    ),
    Metric(name="documents", kind="counter", help="Documents scored", zh="评分的文档数", final=True),
)
