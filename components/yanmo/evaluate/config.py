"""Options of the evaluation stage."""

from __future__ import annotations

from dataclasses import dataclass

from yanmo.options.fields import input_ref, opt
from yanmo.options.shared import StageOptions
from yanmo.options.values import MOST_EXACT
from yanmo.stage.declaration import GENRE, Metric, Stage
from yanmo.stage.shared_metrics import GPU_METRICS


@dataclass(frozen=True, kw_only=True)
class EvaluateConfig(StageOptions, group="evaluate"):
    """Measure one model on the committed evaluation set: bits per character by genre, and how it writes."""

    model: str = input_ref("model to measure", stages=("train",))
    champion: str = input_ref(
        "model that is measured as well, under a key and pointers of its own: the channel's champion, in a "
        "pipeline",
        stages=("train",),
        optional=True,
        default="none",
        keyed=False,
    )
    base: str = input_ref(
        "model that is measured as well: the one that the model was tuned from, in a pipeline that tunes",
        stages=("train",),
        optional=True,
        default="none",
        keyed=False,
    )
    evaluation_set: str = input_ref("documents to measure it on", stages=("evaluation_set",))
    documents: str = input_ref(
        "training documents: for the baselines and the search for copies; 'none' measures neither "
        "(contamination by the model's own training text always is)",
        stages=("curate",),
        also=("balance",),
        optional=True,
        keyed=False,
    )

    split: str = opt("test", "split of the evaluation set", choices=("test", "valid"), often=True)
    stride: int = opt(0, "tokens by which windows over long documents advance; 0 is half the context")
    budget_documents: int = opt(0, "documents scored of each genre, at most; 0 scores all", often=True)
    bootstrap_draws: int = opt(2000, "draws of documents for the intervals", least=100, most=1_000_000)
    seed: int = opt(0, "seed of samples and of bootstrap draws", most=MOST_EXACT)
    tasks: str = opt(
        "none",
        "chat: ask a chat model in words for punctuation, genres, next lines, answers to held-out chats",
        choices=("none", "chat"),
        often=True,
    )
    task_documents: int = opt(50, "documents per genre that tasks are made from", least=1)
    plugin_metrics: str = opt(
        "",
        "metrics of installed packages, made from texts and their bits: names, separated by commas "
        "(docs/how-to/extend.md)",
        kind="execution",  # with their packages' versions they are in the key, where there are some
    )
    samples: int = opt(
        48, "texts generated per genre, for the measures of verse; four are shown", most=100_000, often=True
    )
    sample_tokens: int = opt(80, "longest generated text in tokens", least=1, often=True)
    temperature: float = opt(0.8, "softmax temperature of samples; 0 takes the likeliest token", often=True)
    baseline_characters: int = opt(
        20_000_000,
        "training characters that baselines learn from, at most; they take about 300 bytes of memory each",
        kind="execution",  # of the evaluation; the baselines, a part of their own, have it in their key
        least=1000,
        most=MOST_EXACT,
    )
    device: str = opt(
        "auto",
        "where scoring runs; cuda uses every GPU that the process sees",
        kind="execution",
        choices=("auto", "cpu", "cuda"),
        often=True,
    )
    workers: int = opt(
        0,
        "batches scored and genres sampled at a time, one core each; 0: one for each CPU that this process "
        "may use",
        kind="execution",
        most=10_000,
        often=True,
    )


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
"""What evaluate serves on /metrics."""

STAGE = Stage(
    name="evaluate",
    image="train",
    revision=8,
    config=EvaluateConfig,
    outputs={"evaluation": "Dataset", "metrics": "Metrics"},
    metrics=METRICS,
)
