"""Options of the promotion stage."""

from __future__ import annotations

from dataclasses import dataclass

from yanmo.common.options import NONE, StageOptions, input_ref, opt
from yanmo.common.stage import Stage
from yanmo.promote.limits import parse_limits, parse_unmeasured


@dataclass(frozen=True, kw_only=True)
class PromoteConfig(StageOptions):
    """Compare a challenger with the champion, write verdict and page, crown the better model.

    `yanmo promote history` shows a channel's champions, `yanmo promote rollback` brings one back.
    """

    challenger: str = input_ref("evaluation of the new model", stages=("evaluate",))
    champion: str = input_ref(
        "evaluation of the champion; 'none' where the channel has no champion yet",
        stages=("champion_evaluation",),
        optional=True,
    )
    baselines: str = input_ref(
        "figures of xz, PPMd and the 5-grams, for the page", stages=("baselines",), optional=True
    )
    writing: str = input_ref(
        "how the challenger writes; 'none' leaves it unjudged",
        stages=("writing",),
        optional=True,
    )
    champion_writing: str = input_ref(
        "how the champion writes, for the page",
        stages=("champion_evaluation_writing",),
        optional=True,
        keyed=False,
    )

    min_gain: float = opt(0.003, "least gain of the mean over genres, as a share of the champion's bits")
    month_error: float = opt(
        0.05,
        "chance (0 to 1) that the champion changes in a month without progress; the margin follows from it",
        form=False,
    )
    nights_per_month: int = opt(30, "challengers that share --month-error", form=False)
    assumed_noise: float = opt(
        0.0025,
        "seed's standard deviation as a share of the bits where `yanmo train --twins` measured none",
        form=False,
    )
    least_noise: float = opt(
        0.002,
        "no measured standard deviation of the seed below this is believed: short twins may scatter less "
        "than whole trainings (0.076 % against 0.180 % in one recipe, docs/gate.md)",
        form=False,
    )
    max_genre_loss: float = opt(0.05, "bits per character by which a genre may get worse at most", form=False)
    level: float = opt(0.95, "level of the bootstrap interval whose lower end must be above 0", form=False)
    without_confirmation: str = opt(
        "promote",
        "where the evaluation set has no confirmation split: promote, saying so first, or refuse",
        form=False,
        choices=("promote", "refuse"),
    )
    max_contamination: float = opt(
        0.01,
        "share of the evaluated texts (0 to 1) found in the training text above which nothing is valid",
        form=False,
    )
    limits: str = opt(
        "distinct_2>=0.5,written_share>=0.5,repeated_share<=0.5",
        "bounds of guard metrics, NAME<=X or NAME>=X, with commas between; docs/promote.md has the names",
        form=False,
    )
    accept_unmeasured: str = opt(
        "", "what a promotion may rest on without its having been measured, by name: contamination"
    )
    draws: int = opt(5000, "draws of the paired bootstrap over documents", form=False)
    seed: int = opt(0, "seed of the draws, and of the choice of the verses shown", form=False)

    dry_run: bool = opt(
        False, "judge and write the page, but move no pointer", kind="environment", form=False
    )

    def __post_init__(self) -> None:
        if not 0 <= self.min_gain < 1:
            raise ValueError(f"--min-gain {self.min_gain}: expected 0 to below 1 (0.003 is 0.3 %)")
        if not 0.0001 <= self.month_error <= 0.5:
            raise ValueError(f"--month-error {self.month_error}: expected 0.0001 to 0.5 (0.05 is 5 %)")
        if not 1 <= self.nights_per_month <= 10_000:
            raise ValueError(f"--nights-per-month {self.nights_per_month}: expected 1 to 10000")
        if not 0 <= self.assumed_noise < 1:
            raise ValueError(
                f"--assumed-noise {self.assumed_noise}: expected 0 to below 1 (0.0025 is 0.25 %)"
            )
        if not 0 <= self.least_noise < 1:
            raise ValueError(f"--least-noise {self.least_noise}: expected 0 to below 1 (0.002 is 0.2 %)")
        if not self.max_genre_loss >= 0:
            raise ValueError(f"--max-genre-loss {self.max_genre_loss}: expected 0 or more bits")
        if not 0 <= self.max_contamination <= 1:
            raise ValueError(f"--max-contamination {self.max_contamination}: expected 0 to 1")
        parse_limits(self.limits)
        parse_unmeasured(self.accept_unmeasured)
        if not 0.5 <= self.level < 1:
            raise ValueError(f"--level {self.level}: expected 0.5 to below 1")
        if self.draws < 2000:
            raise ValueError(f"--draws {self.draws}: expected 2000 or more, for the tail of the interval")
        if self.seed < 0:
            raise ValueError(f"--seed {self.seed}: expected 0 or more")
        if self.dry_run:
            object.__setattr__(self, "pointer", NONE)  # the runtime, too, moves nothing


STAGE = Stage(
    name="promote",
    image="train",
    revision=7,
    config=PromoteConfig,
    outputs={"verdict": "Dataset", "report": "HTML", "metrics": "Metrics"},
    parameters=("promoted",),
)
