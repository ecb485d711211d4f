"""Any options, any labels: what differs is shown, apart, on one line, and comes back from CSV and JSON."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import operator
from pathlib import Path
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from yanmo.common.aligned_table import width
from yanmo.common.answers import visible
from yanmo.formats.stage_cost import StageCost
from yanmo.store.file_store import FileStore
from yanmo.store.manifest import Manifest, Reference
from yanmo.store.output import Output
from yanmo.tools.runs.differing import compare_options
from yanmo.tools.runs.evaluations import Bits, Evaluation
from yanmo.tools.runs.export import as_csv, as_json
from yanmo.tools.runs.gather import Gathered, Run
from yanmo.tools.runs.one_change import changes
from yanmo.tools.runs.order import ordered
from yanmo.tools.runs.table import lines, rows

NASTY = (
    "",
    "-",
    "lost",
    "1",
    "诗" * 40,
    "诗" * 40 + "词",
    "\x1b[31m",
    "\u202e",
    "a\nb",
    "\r",
    'a"b',
    "a,b",
    "\ud800",
)
TEXTS = st.one_of(st.sampled_from(NASTY), st.text(max_size=40))
VALUES = st.one_of(TEXTS, st.integers(-5, 5), st.floats(allow_nan=False, allow_infinity=False), st.booleans())
NAMES = st.sampled_from(["seed", "steps", "text", "tokens", "run"])
BITS = st.builds(Bits, st.floats(0, 20), st.none(), st.none()) | st.builds(
    Bits, st.floats(0, 20), st.floats(0, 20), st.floats(0, 20)
)


def output(stage: str, number: int, options: dict[str, Any]) -> Output:
    manifest = Manifest(
        stage=stage, key=f"{number:064x}", revision=1, attempt="0" * 12, files=(), counts={}, options=options
    )
    reference = Reference(
        stage=stage, key=manifest.key, manifest_uri="", manifest_sha256="", content_digest=""
    )
    return Output(FileStore(Path("nowhere")), manifest, reference)


@st.composite
def runs(draw: st.DrawFn) -> Run:
    number = draw(st.integers(0, 9))
    stages = ["train", *draw(st.sets(st.sampled_from(["tokenize", "curate"])))]
    chain = {s: output(s, number, draw(st.dictionaries(NAMES, VALUES, max_size=4))) for s in stages}
    evaluation = None
    if draw(st.booleans()):
        genres = draw(st.dictionaries(TEXTS, BITS, min_size=1, max_size=3))
        evaluation = Evaluation(output("evaluate", number, {}), {"split": draw(TEXTS)}, draw(BITS), genres)
    return Run(
        key=f"{number:064x}",
        model=chain["train"],
        chain=chain,
        state=draw(st.sampled_from(["done", "lost"])),
        is_whole=draw(st.booleans()),
        champion_of=draw(st.lists(TEXTS, max_size=1)),
        evaluation=evaluation,
        cost=StageCost(
            seconds=draw(st.none() | st.floats(0, 1e9)), gpu_hours=draw(st.none() | st.floats(0, 9))
        ),
    )


def of(*options: dict[str, Any]) -> Gathered:
    made = [
        Run(key=f"{i:064x}", model=(m := output("train", i, o)), chain={"train": m})
        for i, o in enumerate(options)
    ]
    return Gathered(uri="file:///x", channel="", runs=made)


GATHERED = st.builds(
    Gathered,
    uri=st.just("file:///x"),
    channel=TEXTS,
    runs=st.lists(runs(), max_size=5),
    elsewhere=st.lists(TEXTS),
)


@settings(deadline=None, max_examples=60)
@given(GATHERED)
@example(of({"seed": 1}, {"seed": "1"}))
@example(of({"seed": "-"}, {"seed": "x"}, {}))
@example(of({"text": "诗" * 30 + "a"}, {"text": "诗" * 30 + "b"}, {"text": "诗" * 30 + "b" * 30}))
def test_what_differs_is_shown_and_stays_apart(found: Gathered) -> None:
    compared = compare_options(found.runs)
    seen: dict[str, set[str]] = {}
    for run in found.runs:
        for stage, made in run.chain.items():
            for name, value in {**made.manifest.options, "revision": 1}.items():
                seen.setdefault(f"{stage}.{name}", set()).add(json.dumps(value))
    assert set(compared.differing) == {name for name, values in seen.items() if len(values) > 1}
    assert not set(compared.differing) & {*compared.same, *compared.in_some}
    assert {*compared.differing, *compared.same, *compared.in_some} == seen.keys()
    if not found.runs:
        return
    heading, *table = rows(found, compared)
    front = heading.index("champion") + 1
    assert len({*heading[front : front + len(compared.differing)]}) == len(compared.differing)
    for column, name in enumerate(compared.differing, front):
        values = [o[name].identity if name in o else None for o in compared.by_run]
        pairs = {(value, row[column]) for value, row in zip(values, table, strict=True)}
        known = [pair for pair in pairs if pair[0] is not None]
        assert len({cell for _, cell in known}) == len({value for value, _ in known}) == len(known)


@settings(deadline=None, max_examples=60)
@given(GATHERED)
def test_every_line_is_one_line_that_a_terminal_does_not_obey(found: Gathered) -> None:
    said = lines(found)
    assert all(line == visible(line) and not {*line} & {*"\n\t"} for line in said)
    "\n".join(said).encode()
    if found.runs:
        table = rows(found, compare_options(found.runs))
        assert len({len(row) for row in table}) == 1
        assert max(width(cell) for row in table for cell in row) <= 28


@settings(deadline=None, max_examples=60)
@given(GATHERED)
def test_csv_and_json_give_back_what_was_written(found: Gathered) -> None:
    compared = compare_options(found.runs)
    text = as_csv(found)
    back = list(csv.DictReader(io.StringIO(text, newline="")))
    document = json.loads(as_json(found))
    assert len(back) == len(document["runs"]) == len(found.runs)
    for number, (run, row) in enumerate(zip(found.runs, back, strict=True)):
        assert row["run"] == f"train/{run.key}" and None not in row
        for name in compared.differing:
            value = compared.by_run[number].get(name)
            expected = "" if value is None else value.plain
            if isinstance(expected, str):
                assert row[name] == expected.encode("utf-8", "backslashreplace").decode()
            else:
                assert json.loads(row[name]) == expected
        if run.evaluation:
            assert float(row["mean"]) == run.evaluation.mean.value
            for genre, bits in run.evaluation.genres.items():
                shown = genre.encode("utf-8", "backslashreplace").decode()
                assert float(row[f"bits.{shown}"]) == bits.value
        options = document["runs"][number]["options"]
        assert options == {name: value.plain for name, value in compared.by_run[number].items()}


@settings(deadline=None, max_examples=60)
@given(GATHERED, st.sampled_from(["made", "mean", "wall", "gpu_hours", "tokens"]))
def test_any_order_keeps_every_run_and_puts_the_unknown_last(found: Gathered, name: str) -> None:
    placed = ordered(found, name)
    assert sorted(map(id, placed)) == sorted(map(id, found.runs))
    if name == "mean":
        means = [run.evaluation.mean.value if run.evaluation else None for run in placed]
        known = [mean for mean in means if mean is not None]
        assert means == sorted(known) + [None] * (len(means) - len(known))


@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(*[st.integers(0, 2)] * 3, st.booleans(), st.booleans()), max_size=9, unique=True))
def test_one_change_names_exactly_the_runs_that_differ_in_one_option(drawn: list[Any]) -> None:
    """A third value stands for an option that the run does not have."""
    made = []
    for number, (*row, is_measured, is_whole) in enumerate(drawn):
        found = output("train", number, {n: v for n, v in zip("abc", row, strict=True) if v})
        evaluation = Evaluation(found, {}, Bits(float(sum(row))), {}) if is_measured else None
        run = Run(key=f"{number:064x}", model=found, chain={"train": found}, is_whole=is_whole)
        made.append(dataclasses.replace(run, evaluation=evaluation))
    told = list(changes(made, compare_options(made)))
    known = [n for n, (*_, is_measured, is_whole) in enumerate(drawn) if is_measured and is_whole]
    pairs = {(i, j) for i in known for j in known if sum(map(operator.ne, drawn[i][:3], drawn[j][:3])) == 1}
    assert pairs <= {(i, j) for one in told for i in one.numbers for j in one.numbers}
    for one in told:
        option = "abc".index(one.name.removeprefix("train."))
        others = {(*drawn[n][:option], *drawn[n][option + 1 : 3]) for n in one.numbers}
        means = [sum(drawn[n][:3]) for n in one.numbers]
        assert len(others) == 1 and {*one.numbers} <= {*known} and means == sorted(means)
        assert len({drawn[n][option] for n in one.numbers}) > 1


def test_an_option_that_some_runs_lack_is_no_column() -> None:
    compared = compare_options(of({"seed": 1}, {"seed": 1, "steps": 2}, {"seed": 1}).runs)
    assert (compared.differing, compared.in_some) == ([], ["train.steps"])
    assert compared.same.keys() == {"train.revision", "train.seed"}
