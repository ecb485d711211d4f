"""What the runs of each setting say together, the best setting first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from yanmo.common.errors import ExitCode
from yanmo_pipelines.sweep.measuring import Result
from yanmo_pipelines.sweep.plan import Plan
from yanmo_pipelines.sweep.spread import Mean, mean_of

_GRAVEST = (ExitCode.BUG, ExitCode.DATA, ExitCode.USAGE, ExitCode.ENVIRONMENT, ExitCode.RETRY)


@dataclass(frozen=True)
class Summary:
    """The runs of one setting."""

    setting: int
    """Its number in the plan, from 0."""
    done: Sequence[Result]
    mean: Mean | None
    """Bits per character, mean over genres; None without a measured run."""
    genres: dict[str, Mean | None]
    worse: Mean | None
    """Its bits less those of the best setting, seed by seed on the same text; None for the best itself, and
    where no seed of both was trained on the same text."""
    seconds: Mean | None
    """Wall time of a training."""


def summarize(plan: Plan, results: Sequence[Result]) -> list[Summary]:
    """One for each setting: the best of those with the most seeds first, those with fewer seeds last.

    A setting of which a seed failed may look good by the seeds that are left.
    """
    found = [_summary(number, results) for number in range(len(plan.settings))]
    found.sort(key=lambda s: (-len(s.done), s.mean.value if s.mean else 0.0))
    best = found[0]
    return [best, *(_compared(each, best) for each in found[1:])]


def _summary(number: int, results: Sequence[Result]) -> Summary:
    done = [r for r in results if r.run.setting == number and r.evaluation]
    evaluations = [r.evaluation for r in done if r.evaluation]
    names = list(dict.fromkeys(genre for each in evaluations for genre in each.genres))
    genres = {g: mean_of([e.genres[g].value for e in evaluations if g in e.genres]) for g in names}
    seconds = [r.cost.seconds for r in done if r.cost.seconds is not None]
    mean = mean_of([e.mean.value for e in evaluations])
    return Summary(number, done, mean, genres, None, mean_of(seconds))


def _compared(one: Summary, best: Summary) -> Summary:
    of_best = {(r.run.seed, _text_of(r)): r.mean for r in best.done}
    pairs = [(r.mean, of_best.get((r.run.seed, _text_of(r)))) for r in one.done]
    worse = mean_of([mine - its for mine, its in pairs if mine is not None and its is not None])
    return Summary(one.setting, one.done, one.mean, one.genres, worse, one.seconds)


def _text_of(result: Result) -> str:
    """The token cache that it was trained on, by its content."""
    value = result.model.manifest.inputs.get("token_cache") if result.model else None
    return str(value["content_digest"]) if value else ""


def gravest(results: Sequence[Result]) -> int:
    """The exit code of a sweep: the gravest of its runs, 75 where one is missing for another reason."""
    codes = {result.code for result in results if result.state == "failed"}
    if any(result.state not in ("done", "failed") for result in results):
        codes.add(ExitCode.RETRY)
    return next((int(code) for code in _GRAVEST if code in codes), max(codes, default=ExitCode.DONE))
