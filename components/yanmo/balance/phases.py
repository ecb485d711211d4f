"""The stage: reads the train split, sets targets, chooses documents, writes them, reports; copies valid."""

from __future__ import annotations

import json
import logging
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from yanmo.balance.augmentation.augment import REPEAT, Augmenter, HeldOut, copy_digest, count_rules
from yanmo.balance.augmentation.rules import ONLY, OTHERS, parse_rules
from yanmo.balance.augmentation.synonyms import CLASSICAL_WORDS, MODERN_WORDS, Synonyms
from yanmo.balance.config import BalanceOptions
from yanmo.balance.document_table import COLUMNS, Rows, TokenCount, TrainFiles
from yanmo.balance.quotas.choice import Picker, plan_of_classes
from yanmo.balance.quotas.targets import QuotaPlan, Target, parse_plan, targets
from yanmo.balance.report import (
    add_targets,
    class_metrics,
    find_warnings,
    log_report,
    warn_unused_others,
)
from yanmo.common.errors import UsageError
from yanmo.common.freed_memory import trim_heap
from yanmo.common.words import some_of
from yanmo.formats.documents import text_form, write_document_file
from yanmo.formats.row_pieces import Layout, Pieces, cut_file
from yanmo.nights.observer import NightObserver
from yanmo.options.nearest import did_you_mean
from yanmo.stage.stage_run import Finish, Prepared, StageRun, Steps
from yanmo.store.commit import Result
from yanmo.store.manifest import file_sha256
from yanmo.store.output import Output

log = logging.getLogger(__name__)
BalanceRun = StageRun[BalanceOptions, None]


def prepare(run: BalanceRun) -> Prepared[None]:
    """Make the user's file of synonyms part of the key."""
    options: BalanceOptions = run.options
    if not options.synonyms:
        return Prepared(None)
    path = Path(options.synonyms)
    Synonyms.read(path)  # refused now, and not after the quotas are filled
    return Prepared(None, {"synonyms": {"content_digest": file_sha256(path), "uri": path.name}})


@dataclass(frozen=True)
class Task:
    """What the stage reads before it chooses: the documents' table, tokenizer, augmentation."""

    files: TrainFiles
    rows: Rows
    counting: TokenCount
    augmenter: Augmenter | None

    @classmethod
    def read(cls, run: BalanceRun) -> Task:
        """Read the table and, with --augment, what augmentation needs."""
        options: BalanceOptions = run.options
        documents, tokenizer = run.input("documents"), run.inputs.get("tokenizer")
        counting = TokenCount(tokenizer.path("tokenizer.json") if tokenizer else None)
        if options.unit == "tokens" and counting.is_estimate:
            log.warning(
                "--unit tokens without --tokenizer: each character and line break counts as one token"
            )
        files = TrainFiles(documents.paths("train-*.parquet"))
        rows = files.read(options.by, counting)
        if rows.unlabelled:
            part, labels = rows.unlabelled[0], files.labels()
            what = "this label" if part == options.by else f"the label {part}"
            raise UsageError(
                f"--by {options.by}: no document has {what}; expected {', '.join(COLUMNS)} "
                f"or one of their labels: {', '.join(labels) or 'they have none'}"
                f"{did_you_mean(part, [*COLUMNS, *labels])}"
            )
        return cls(files, rows, counting, _augmenter(options, documents, rows.names("genre")))


def _augmenter(options: BalanceOptions, documents: Output, genres: Sequence[str]) -> Augmenter | None:
    rules = parse_rules(options.augment)
    if not rules:
        return None
    for genre in rules.by_genre:
        if genre not in (OTHERS, *genres):
            raise UsageError(
                f"--augment: no documents of genre {genre}{did_you_mean(genre, genres)}; there are "
                f"{some_of(genres)}: name one of them"
            )
    held_out = documents.paths("valid-*.parquet") if documents.entries("valid-*.parquet") else []
    if "evaluation_set" in documents.manifest.references:
        held_out += documents.part("evaluation_set").paths("*.parquet")
    else:
        log.warning("%s names no evaluation set: augmented text is compared with valid only", documents)
    form = text_form(documents)
    classical = form.startswith("classical")
    for rule, for_classical in ONLY.items():
        if for_classical != classical and any(rule in of for of in rules.by_genre.values()):
            other = "insert" if classical else "insert-modern"
            raise UsageError(f"--augment: {rule} is not for text in the form {form}; use {other}")
    shipped = CLASSICAL_WORDS if classical else MODERN_WORDS
    words = Synonyms.read(Path(options.synonyms) if options.synonyms else shipped)
    return Augmenter(rules, words, HeldOut.of_files(held_out, form), options.seed, classical)


def work(run: BalanceRun) -> Result:
    """Write train by the quotas, valid unchanged, and report.json."""
    options: BalanceOptions = run.options
    documents, task = run.input("documents"), Task.read(run)
    plan = plan_of_classes(options.quotas, task.rows.names("class"), options.by)
    trim_heap()
    wanted = _choose(options, task, plan)
    genres = _in_noted_order(documents, task.rows.names("genre"))
    by_genre = class_metrics(task.rows, "genre")
    by_genre = {genre: by_genre[genre] for genre in genres}
    report = _report(options, task, plan, wanted, by_genre)
    trim_heap()
    made = _write_train(run, task)
    for path in documents.paths("valid-*.parquet"):
        shutil.copyfile(path, run.attempt.path(path.name))
        run.attempt.add(path.name)
    if task.augmenter and not made:
        report["warnings"].append(
            "--augment changes nothing: no document is repeated; raise --quotas (wen=200%)"
        )
    report["augmentation"] = task.augmenter and {
        "options": options.augment,
        "rules": dict(made),
        "shared": task.augmenter.shared,
    }
    run.attempt.write("report.json", json.dumps(report, ensure_ascii=False, indent=1) + "\n", role="record")
    log_report(report)
    _export(run, by_genre)
    return Result(
        counts=_counts(by_genre, documents.manifest.counts),
        metadata={**documents.manifest.metadata, "genres": genres},
    )


def _choose(options: BalanceOptions, task: Task, plan: QuotaPlan) -> dict[str, Target]:
    picker = Picker(
        task.files, task.rows, options.unit, options.seed, options.max_repeats, task.counting, task.augmenter
    )
    wanted = targets(plan, picker.available(), max_repeats=options.max_repeats)
    picker.pick(wanted)
    return wanted


def _report(
    options: BalanceOptions,
    task: Task,
    plan: QuotaPlan,
    wanted: Mapping[str, Target],
    by_genre: Mapping[str, Any],
) -> dict[str, Any]:
    classes = class_metrics(task.rows, "class")
    classes = {name: classes[name] for name in (by_genre if options.by == "genre" else sorted(classes))}
    add_targets(classes, wanted, options.unit)
    warnings = warn_unused_others(parse_plan(options.quotas), plan.quotas)
    warnings += find_warnings(classes, wanted, plan, options.unit, options.max_repeats)
    estimate = "estimated: one per character, line break and end"
    return {
        "by": options.by,
        "unit": options.unit,
        "quotas": options.quotas,
        "tokens": estimate if task.counting.is_estimate else "counted",
        "classes": classes,
        **({"genres": by_genre} if options.by != "genre" else {}),
        "warnings": warnings,
    }


def _in_noted_order(documents: Output, names: list[str]) -> list[str]:
    """Return the genres in train: first those that curate listed, in its order, then the others by name."""
    noted = [name for name in documents.manifest.metadata.get("genres", []) if name in names]
    return noted + sorted(set(names).difference(noted))


def _counts(by_genre: Mapping[str, Any], before: Mapping[str, Any]) -> dict[str, Any]:
    return {
        what: {
            "train": {genre: figures["after"][what] for genre, figures in by_genre.items()},
            "valid": before[what]["valid"],
        }
        for what in ("documents", "characters")
    }


_PLACED = """
create or replace table placed as
with ordered as (
    select position, copy, row_number() over by_id as place,
        (sum(characters) over by_id - characters) // $shard_characters as shard
    from picked window by_id as (order by id, class, copy, position rows unbounded preceding)
), parts as (
    select shard, (row_number() over (order by shard) - 1)::integer as part
    from (select distinct shard from ordered)
)
select part, file, row, place, copy
from ordered join parts using (shard) join rows using (position) order by part, place
"""
"""The documents of the output in the order of their ids, about so many characters in each part."""


def _write_train(run: BalanceRun, task: Task) -> dict[str, int]:
    """Write the chosen documents; returns rule -> number of copies it made."""
    if task.augmenter:
        task.augmenter.shared = 0  # counts copies that are written, not those that were only measured
    tables = task.rows.tables
    tables.run(_PLACED, shard_characters=run.options.shard_characters)
    scratch = run.attempt.path("scratch/pieces").parent
    layout = Layout(paths=task.files.paths, tables=tables, scratch=scratch)
    for cut in layout.cuts():
        cut_file(cut)
    made: Counter[str] = Counter()

    def columns(pieces: Pieces, copies: npt.NDArray[np.int32]) -> Iterator[tuple[int, dict[str, Any]]]:
        start = 0
        for table in pieces.tables():
            values: dict[str, Any] = {name: table[name] for name in table.column_names}
            values |= _copied(task, table, copies[start : start + len(table)])
            made.update(rule for rule in values["rule"].to_pylist() if rule)
            yield len(table), values
            start += len(table)

    form = text_form(run.input("documents"))
    for part in range(len(layout.sizes)):
        name, pieces = f"train-{part:05d}-of-{len(layout.sizes):05d}.parquet", layout.pieces(part)
        copies = tables.table("select copy from placed where part = $part order by place", part=part)["copy"]
        parts = columns(pieces, copies.to_numpy())
        write_document_file(run.attempt.path(name), form, pieces.has("turns"), parts)
        run.attempt.add(name)
    shutil.rmtree(scratch)
    return count_rules(made)


def _copied(task: Task, table: pa.Table, copies: npt.NDArray[np.int32]) -> dict[str, Any]:
    """Return the columns id, parent_id, rule and text, in which copies differ from their originals."""
    at = np.flatnonzero(copies)
    names = ("id", "parent_id", "rule", "text") if task.augmenter else ("id", "parent_id", "rule")
    if not len(at):
        return {name: table[name] for name in names}
    columns = {name: table[name].to_pylist() for name in names}
    chosen = table.select(["id", "text", "genre", "loss_spans"]).take(pa.array(at))
    parents = chosen["id"].to_pylist()
    augmented = task.augmenter.of_table(chosen, copies[at].tolist()) if task.augmenter else None
    for i, place in enumerate(at.tolist()):
        made = augmented[i] if augmented else None
        columns["id"][place] = copy_digest(parents[i], int(copies[place]), made).hex()
        columns["parent_id"][place] = parents[i]
        columns["rule"][place] = made.rule if made else REPEAT
        if made:
            columns["text"][place] = made.text
    return {name: pa.array(values, pa.string()) for name, values in columns.items()}


def _export(run: BalanceRun, by_genre: Mapping[str, Any]) -> None:
    telemetry = run.telemetry
    for genre, figures in by_genre.items():
        telemetry.add("documents_read", figures["before"]["documents"], genre=genre)
        telemetry.add("documents_kept", figures["after"]["documents"], genre=genre)
        telemetry.add("characters_kept", figures["after"]["characters"], genre=genre)
        telemetry.set("epochs", figures["epochs"], genre=genre)


def finish(run: BalanceRun, output: Output) -> Finish:
    """Numbers of documents and characters, for KFP's UI."""
    counts: dict[str, Any] = output.manifest.counts
    shown = {
        f"{split}_{what}": sum(counts[what][split].values()) for what in counts for split in counts[what]
    }
    return Finish(metadata={"documents": shown})


STEPS = Steps(work, prepare=prepare, finish=finish, observer=NightObserver)
