"""The table at the end of a sweep, and the same as CSV."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from yanmo.common.aligned_table import text_table
from yanmo.common.logs import human_bytes, human_seconds
from yanmo.common.shell_words import shell_line
from yanmo.tools.runs.differing import ABSENT
from yanmo.tools.runs.export import csv_text
from yanmo.tools.runs.table import plain, shortened
from yanmo_pipelines.run_form import form_fields
from yanmo_pipelines.stages import EVALUATE
from yanmo_pipelines.sweep.measuring import Result
from yanmo_pipelines.sweep.plan import Plan
from yanmo_pipelines.sweep.settings import CHAIN, SEED, Name
from yanmo_pipelines.sweep.spread import Mean
from yanmo_pipelines.sweep.summary import Summary, summarize

_WIDEST = 32
_LONGEST_REASON = 300
"""Columns; the log and the CSV have all of it."""
_OF_THE_FORM = {Name("train", "model"): "model_start", Name("tokenize", "tokenizer"): "model_tokenizer"}


def lines(
    plan: Plan, results: Sequence[Result], run_command: Sequence[str], gc_command: str
) -> Iterator[str]:
    """The table, and what a reader should know of it.

    Args:
        run_command: how `yanmo run` is called on this store and channel, word by word.
        gc_command: what removes the models.
    """
    summaries = summarize(plan, results)
    yield from text_table([[plain(cell) for cell in row] for row in _rows(plan, summaries)])
    yield ""
    failed = [r for r in results if r.state not in ("done", "not run")]
    for result in failed:
        why = shortened(plain(result.reason or "a signal came"), _LONGEST_REASON)
        yield plain(f"{result.state}: {plan.called(result.run)}: {why}")
    missing = sum(result.state == "not run" for result in results)
    if missing:
        yield f"not run: {missing} of {len(results)}; the same command goes on"
    best = summaries[0]
    if best.done:
        yield from _measured_how(summaries)
        yield from _choice(plan, summaries, run_command)
        yield _kept(results, gc_command)


def _rows(plan: Plan, summaries: Sequence[Summary]) -> Iterator[list[str]]:
    names, genres = _options(plan), _genres(summaries)
    most = len(plan.seeds)
    yield [*map(str, names), "seeds", "mean", "worse than the best", *genres, "training"]
    for each in summaries:
        setting = plan.settings[each.setting]
        row = [shortened(setting[name], _WIDEST) for name in names] if names else []
        seconds = human_seconds(each.seconds.value) if each.seconds else ABSENT
        worse = "best" if each is summaries[0] and each.done else _shown(each.worse, "+.3f")
        bits = [_shown(each.genres.get(genre)) for genre in genres]
        yield [*row, f"{len(each.done)} of {most}", _shown(each.mean), worse, *bits, seconds]


def _shown(mean: Mean | None, form: str = ".3f") -> str:
    if mean is None:
        return ABSENT
    if mean.half_width is None:
        return f"{mean.value:{form}}"
    return f"{mean.value:{form}} ± {mean.half_width:.3f}"


def _options(plan: Plan) -> list[Name]:
    return list(plan.settings[0])


def _genres(summaries: Sequence[Summary]) -> list[str]:
    return list(dict.fromkeys(genre for each in summaries for genre in each.genres))


def _measured_how(summaries: Sequence[Summary]) -> Iterator[str]:
    first = summaries[0].done[0].evaluation
    assert first is not None
    where = first.output.manifest.inputs["evaluation_set"] or {}
    split = first.conditions.get("split", "?")
    yield (
        f"bits per character, lower is better: {split} split of {where.get('stage')}/"
        f"{str(where.get('key'))[:12]}, mean over seeds"
    )
    number = max(len(each.done) for each in summaries)
    if number > 1:
        yield (
            f"±: 95 % interval by Student's t over the seeds ({number} at most; few seeds make it wide); "
            "it says nothing of other texts"
        )
    else:
        yield "one seed a setting: nobody knows how much of a difference is chance; --seeds 3 shows it"
    if len(summaries) > 1:
        yield "worse than the best: the difference of trainings with the same seed on the same text, its mean"
    if split == "test" and len(summaries) > 1:
        yield (
            "WARNING: chosen on the test split: the best of several looks better than it is, and the test "
            "split is used up for it; leave out evaluate.split to choose on the validation split"
        )


def _choice(plan: Plan, summaries: Sequence[Summary], run_command: Sequence[str]) -> Iterator[str]:
    best = summaries[0]
    if len(summaries) > 1:
        yield (
            f"the best of {len(summaries)} settings was picked by these numbers and looks a little better "
            "than it is; the test split and the champion have the last word (its best training is found by "
            "its key):"
        )
    else:
        yield "through the gate, on the test split (the best training is found by its key):"
    yield ""
    yield "  " + shell_line([*run_command, *run_settings(plan, best)])
    yield ""


def run_settings(plan: Plan, best: Summary) -> list[str]:
    """`--set NAME=VALUE ...` of `yanmo run` for a setting, with the seed of its best run.

    The pipeline finds that training by its key.
    """
    fields = {Name(f.stage, f.option): f.name for stage in CHAIN for f in form_fields(stage)} | _OF_THE_FORM
    run = min(best.done, key=lambda r: r.mean or 0.0).run
    values = {**plan.base, **plan.settings[best.setting], SEED: str(run.seed)}
    given = {name: value for name, value in values.items() if name.stage != EVALUATE.name}
    return [word for n, v in given.items() for word in ("--set", f"{fields.get(n, n)}={v}")]


def _kept(results: Sequence[Result], gc_command: str) -> str:
    models = {r.model.manifest.key: r.model for r in results if r.model}.values()
    size = sum(file.bytes for model in models for file in model.manifest.files)
    return (
        f"{len(models)} models take {human_bytes(size)}, and no pointer names them: `{gc_command} --delete` "
        "removes them once they are 7 days old, with --older-than 1h sooner"
    )


def as_csv(plan: Plan, results: Sequence[Result]) -> str:
    """A line a run, with the figures of its setting at the end; empty is unknown."""
    summaries = {each.setting: each for each in summarize(plan, results)}
    genres = _genres(list(summaries.values()))
    return csv_text([_record(plan, r, summaries[r.run.setting], genres) for r in results])


def _record(plan: Plan, result: Result, own: Summary, genres: Sequence[str]) -> dict[str, Any]:
    evaluation, model = result.evaluation, result.model
    row: dict[str, Any] = {str(n): v for n, v in plan.settings[result.run.setting].items()}
    row |= {"train.seed": result.run.seed, "state": result.state, "exit_code": int(result.code)}
    row |= {"reason": result.reason, "run": f"train/{model.manifest.key}" if model else ""}
    row["evaluation"] = f"evaluate/{evaluation.output.manifest.key}" if evaluation else ""
    row["mean"] = result.mean
    for genre in genres:
        bits = evaluation.genres.get(genre) if evaluation else None
        row[f"bits.{genre}"] = bits.value if bits else None
    row |= {n: getattr(result.cost, n) for n in ("seconds", "cpu_seconds", "gpu_hours", "kwh")}
    counts = model.manifest.counts if model else {}
    row |= {n: counts.get(n) for n in ("steps", "tokens", "parameters")}
    return row | _of_setting("setting_mean", own.mean) | _of_setting("setting_worse", own.worse)


def _of_setting(name: str, mean: Mean | None) -> dict[str, Any]:
    values = (mean.number, mean.value, mean.low, mean.high) if mean else (None,) * 4
    return dict(zip((f"{name}_seeds", name, f"{name}_low", f"{name}_high"), values, strict=True))
