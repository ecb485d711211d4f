"""Options of the promotion stage."""

from __future__ import annotations

from dataclasses import dataclass

from yanmo.options.fields import NONE, input_ref, opt
from yanmo.options.shared import StageOptions
from yanmo.options.values import MOST_EXACT, brief
from yanmo.promote.gate.limits import parse_limits
from yanmo.stage.declaration import GENRE, Label, Metric, Stage


@dataclass(frozen=True, kw_only=True)
class PromoteConfig(StageOptions, group="promote"):
    """Compare a challenger with the champion, write verdict and page, promote the better model.

    `yanmo promote history` shows a channel's champions, `yanmo promote rollback` brings one back, and
    `yanmo promote set` makes a judged model champion by hand, such as one that --hold kept waiting.
    """

    challenger: str = input_ref("evaluation of the new model", stages=("evaluate",))
    champion: str = input_ref(
        "evaluation of the champion; 'none' where the channel has no champion yet",
        stages=("champion_evaluation",),
        optional=True,
        inside="challenger",
    )
    baselines: str = input_ref(
        "results of xz, PPMd and the 5-grams, for the page",
        stages=("baselines",),
        optional=True,
        inside="challenger",
    )
    writing: str = input_ref(
        "how the challenger writes; 'none' leaves it unjudged",
        stages=("writing",),
        optional=True,
        inside="challenger",
    )
    base: str = input_ref(
        "evaluation of the model that the challenger was tuned from: what it gained and forgot",
        stages=("base_evaluation",),
        optional=True,
        inside="challenger",
    )

    min_gain: float = opt(
        0.003,
        "least gain of the mean over genres, as a share of the champion's bits",
        form="promote_min_gain",
        below=1,
        often=True,
    )
    month_error: float = opt(
        0.05,
        "chance (0 to 1) that the champion changes in 30 nights without progress; the margin follows from it",
        least=0.0001,
        most=0.5,
        often=True,
    )
    max_genre_loss: float = opt(0.05, "bits per character by which a genre may get worse at most", often=True)
    without_confirmation: str = opt(
        "promote",
        "where the evaluation set has no confirmation split: promote, saying so first, or refuse",
        choices=("promote", "refuse"),
        often=True,
    )
    max_contamination: float = opt(
        0.01,
        "share of evaluated texts (0 to 1) found in the training text above which the verdict is not valid",
        most=1,
    )
    limits: str = opt(
        "distinct_2>=0.5,written_share>=0.5,repeated_share<=0.5",
        "bounds of guard metrics, NAME<=X or NAME>=X, with commas between; names: docs/reference/promote.md",
        often=True,
    )
    accept_unmeasured: str = opt(
        "",
        "what need not be measured for a promotion, by name: contamination",
    )
    draws: int = opt(5000, "draws of the paired bootstrap over documents", least=2000, most=1_000_000)
    seed: int = opt(0, "seed of the draws, and of the choice of the verses shown", most=MOST_EXACT)

    dry_run: bool = opt(
        False, "judge and write the page, but move no pointer", kind="environment", often=True
    )

    hold: bool = opt(
        False,
        "leave the champion pointer where it is though the model wins; a person moves it: yanmo promote set",
        kind="environment",
        often=True,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.dry_run:
            object.__setattr__(self, "pointer", NONE)  # the stage itself moves no pointer either

    def contradictions(self) -> list[str]:
        parse_limits(self.limits)  # raises by itself
        if self.accept_unmeasured in ("", "contamination"):
            return []
        return [f"--accept-unmeasured {brief(self.accept_unmeasured)}: expected contamination"]


OUTCOMES = ("promoted", "not promoted", "not valid")
"""As in gate/verdict.py."""
HELD = "held"
"""Shown in the place of `promoted` where --hold leaves the pointer to a person."""
_MODEL = Label(name="model", values=("challenger", "champion"))

METRICS = (
    Metric(
        name="verdict",
        help="1 for what the verdict says (held: it won, and waits for a person), 0 for the rest",
        zh="判定的结论为 1（held：胜出，待人决定），其余为 0",
        labels=(Label(name="outcome", values=(*OUTCOMES, HELD)),),
        final=True,
    ),
    Metric(
        name="mean_bits_per_character",
        help="Bits per character, mean over genres",
        zh="每字符比特数，各体裁的平均",
        labels=(_MODEL,),
        final=True,
    ),
    Metric(
        name="bits_per_character",
        help="Bits per character by genre",
        zh="各体裁的每字符比特数",
        labels=(_MODEL, GENRE),
        final=True,
    ),
    Metric(
        name="nights_since_promotion",
        help="Nights of this recipe that were judged against the same champion, this one included; 0 where "
        "it is promoted",
        zh="本配方与同一冠军比较过的夜数，含本夜；本夜晋升则为 0",
        final=True,
    ),
    Metric(
        name="champion_since_timestamp_seconds",
        help="Unix time since which the channel has its champion",
        zh="频道现任冠军晋升的 Unix 时间",
        alert="YanmoNoPromotion",
    ),
)
"""What promote serves on /metrics."""

STAGE = Stage(
    name="promote",
    image="train",
    revision=10,
    config=PromoteConfig,
    outputs={
        "verdict": "Dataset",
        "report": "HTML",
        "verdict_line": "Markdown",
        "champion": "Model",
        "metrics": "Metrics",
    },
    parameters=("promoted", "result", "status"),
    metrics=METRICS,
)
