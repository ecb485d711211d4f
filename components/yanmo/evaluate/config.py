"""Options of the evaluation stage."""

from __future__ import annotations

from dataclasses import dataclass

from yanmo.common.options import StageOptions, input_ref, opt
from yanmo.common.stage import Stage


@dataclass(frozen=True, kw_only=True)
class EvaluateConfig(StageOptions):
    """Measure one model on the committed evaluation set: bits per character by genre, and how it writes."""

    model: str = input_ref(
        "model to measure; 'none' ends at once (no champion yet)", stages=("train",), optional=True
    )
    evaluation_set: str = input_ref("documents to measure it on", stages=("evaluation_set",))
    documents: str = input_ref(
        "training documents: of the baselines, and to look for copies in; 'none' measures neither "
        "(contamination by the model's own training text always is)",
        stages=("curate",),
        also=("balance",),
        optional=True,
        keyed=False,
    )

    split: str = opt("test", "split of the evaluation set", form=False, choices=("test", "valid"))
    stride: int = opt(
        0, "tokens by which windows over long documents advance; 0 is half the context", form=False
    )
    budget_documents: int = opt(0, "documents scored of each genre, at most; 0 scores all", form=False)
    budget_minutes: float = opt(
        0.0,
        "minutes of one core that scoring may take, counted by operations and not by a clock; 0 is no limit",
        form=False,
    )
    with_tag: bool = opt(
        True,
        "score each document a second time behind its genre tag (a column, not the headline)",
        form=False,
    )
    bootstrap_draws: int = opt(2000, "draws of documents for the intervals", form=False)
    seed: int = opt(0, "seed of samples and of bootstrap draws", form=False)
    tasks: str = opt(
        "none",
        "restore punctuation, name the genre, find the next line: asked in words of a chat model, "
        "or chosen by likelihood",
        form=False,
        choices=("none", "likelihood", "chat"),
    )
    task_documents: int = opt(50, "documents per genre that tasks are made from", form=False)
    harness_tasks: str = opt(
        "",
        "folder with tasks of lm-evaluation-harness: YAML files and their local data; empty runs none",
        kind="execution",  # its files' digest is in the key
        form=False,
    )
    harness_limit: int = opt(0, "examples of each task of the harness, at most; 0 takes all", form=False)
    samples: int = opt(48, "texts generated per genre, for the measures of verse; four are shown", form=False)
    sample_tokens: int = opt(80, "longest generated text in tokens", form=False)
    temperature: float = opt(0.8, "softmax temperature of samples; 0 takes the likeliest token")
    top_p: float = opt(0.95, "probability mass of the likeliest tokens that samples draw from", form=False)
    baseline_characters: int = opt(
        20_000_000,
        "training characters that baselines learn from, at most; they take about 250 bytes of memory each",
        kind="execution",  # of the evaluation; the baselines, a part of their own, have it in their key
        form=False,
    )
    device: str = opt(
        "auto",
        "where scoring runs; cuda uses every GPU that the process sees",
        kind="execution",
        form=False,
        choices=("auto", "cpu", "cuda"),
    )
    workers: int = opt(
        2, "batches scored and genres sampled at a time, one core each", kind="execution", form=False
    )

    def __post_init__(self) -> None:
        least = {
            "bootstrap_draws": 100,
            "samples": 0,
            "sample_tokens": 1,
            "temperature": 0.0,
            "workers": 1,
            "baseline_characters": 1000,
            "seed": 0,
            "stride": 0,
            "budget_documents": 0,
            "task_documents": 1,
            "harness_limit": 0,
            "budget_minutes": 0.0,
        }
        for name, low in least.items():
            if not getattr(self, name) >= low:
                raise ValueError(f"--{name.replace('_', '-')} {getattr(self, name)}: expected {low} or more")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"--top-p {self.top_p}: expected above 0 and at most 1")


STAGE = Stage(
    name="evaluate",
    image="train",
    revision=8,
    config=EvaluateConfig,
    outputs={"evaluation": "Dataset", "baselines": "Dataset", "writing": "Dataset", "metrics": "Metrics"},
)
