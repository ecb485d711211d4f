"""The stage: reads the train split, sets targets, chooses documents, writes them, reports; copies valid."""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from yanmo.balance.augmentation.augment import Augmentation, count_rules
from yanmo.balance.augmentation.rules import ONLY, OTHERS, parse_rules
from yanmo.balance.augmentation.synonyms import CLASSICAL_WORDS, MODERN_WORDS, Synonyms
from yanmo.balance.config import BalanceOptions
from yanmo.balance.document_table import COLUMNS, Rows, labels_of, read_rows
from yanmo.balance.quotas.choice import Picker, plan_of_classes
from yanmo.balance.quotas.targets import QuotaPlan, Target, parse_plan, targets
from yanmo.balance.report import (
    add_targets,
    class_metrics,
    find_warnings,
    log_report,
    warn_unused_others,
)
from yanmo.balance.writing import write_train
from yanmo.common.errors import UsageError
from yanmo.common.freed_memory import trim_heap
from yanmo.common.words import did_you_mean, some_of
from yanmo.engine.maps import begin, paths_for_tasks, tasks_at_a_time
from yanmo.formats.documents import text_form
from yanmo.nights.observer import NightObserver
from yanmo.stage.stage_run import Finish, Prepared, StageRun, Steps
from yanmo.store.commit import Result
from yanmo.store.manifest import file_sha256
from yanmo.store.output import Output

log = logging.getLogger(__name__)
BalanceRun = StageRun[BalanceOptions, None]


def prepare(run: BalanceRun) -> Prepared[None]:
    """Make the user's file of synonyms part of the key."""
    options: BalanceOptions = run.options
    begin(options, run.store)
    if not options.synonyms:
        return Prepared(None)
    path = Path(options.synonyms)
    Synonyms.read(path)  # refused now, and not after the quotas are filled
    return Prepared(None, {"synonyms": {"content_digest": file_sha256(path), "uri": path.name}})


@dataclass(frozen=True)
class Task:
    """What the stage reads before it chooses: files for tasks, the documents' table, augmentation."""

    files: Sequence[Path]
    rows: Rows
    tokenizer: Path | None
    augmentation: Augmentation | None
    workers: int

    @classmethod
    def read(cls, run: BalanceRun) -> Task:
        """Read the table and, with --augment, what augmentation needs."""
        options: BalanceOptions = run.options
        documents, given = run.input("documents"), run.inputs.get("tokenizer")
        tokenizer = paths_for_tasks(given, "tokenizer.json")[0] if given else None
        if options.unit == "tokens" and not tokenizer:
            log.warning(
                "--unit tokens without --tokenizer: each character and line break counts as one token"
            )
        files, workers = paths_for_tasks(documents, "train-*.parquet"), tasks_at_a_time(options.workers)
        count = sum(documents.manifest.counts["documents"]["train"].values())
        rows = read_rows(files, options.by, tokenizer, workers, count)
        if rows.unlabelled:
            part, labels = rows.unlabelled[0], labels_of(documents.paths("train-*.parquet")[0])
            what = "this label" if part == options.by else f"the label {part}"
            raise UsageError(
                f"--by {options.by}: no document has {what}; expected {', '.join(COLUMNS)} "
                f"or one of their labels: {', '.join(labels) or 'they have none'}"
                f"{did_you_mean(part, [*COLUMNS, *labels])}"
            )
        return cls(files, rows, tokenizer, _augmentation(options, documents, rows.names("genre")), workers)


def _augmentation(options: BalanceOptions, documents: Output, genres: Sequence[str]) -> Augmentation | None:
    rules = parse_rules(options.augment)
    if not rules:
        return None
    for genre in rules.by_genre:
        if genre not in (OTHERS, *genres):
            raise UsageError(
                f"--augment: no documents of genre {genre}{did_you_mean(genre, genres)}; there are "
                f"{some_of(genres)}: name one of them"
            )
    held_out = paths_for_tasks(documents, "valid-*.parquet") if documents.entries("valid-*.parquet") else []
    if "evaluation_set" in documents.manifest.references:
        held_out += paths_for_tasks(documents.part("evaluation_set"), "*.parquet")
    else:
        log.warning("%s names no evaluation set: augmented text is compared with valid only", documents)
    form = text_form(documents)
    classical = form.startswith("classical")
    for rule, for_classical in ONLY.items():
        if for_classical != classical and any(rule in of for of in rules.by_genre.values()):
            other = "insert" if classical else "insert-modern"
            raise UsageError(f"--augment: {rule} is not for text in the form {form}; use {other}")
    shipped = CLASSICAL_WORDS if classical else MODERN_WORDS
    words = Path(options.synonyms) if options.synonyms else shipped
    return Augmentation(
        rules=options.augment,
        words=words,
        words_sha256=file_sha256(words),
        held_out=tuple(held_out),
        form=form,
        seed=options.seed,
    )


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
    made = write_train(
        run.attempt,
        task.files,
        task.rows.tables,
        augmentation=task.augmentation,
        form=text_form(documents),
        shard_characters=options.shard_characters,
        workers=task.workers,
    )
    for path in documents.paths("valid-*.parquet"):
        shutil.copyfile(path, run.attempt.path(path.name))
        run.attempt.add(path.name)
    if task.augmentation and not made.rules:
        report["warnings"].append(
            "--augment changes nothing: no document is repeated; raise --quotas (wen=200%)"
        )
    report["augmentation"] = task.augmentation and {
        "options": options.augment,
        "rules": count_rules(made.rules),
        "shared": made.shared,
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
        files=task.files,
        rows=task.rows,
        unit=options.unit,
        seed=options.seed,
        max_repeats=options.max_repeats,
        workers=task.workers,
        tokenizer=task.tokenizer,
        augmentation=task.augmentation,
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
        "tokens": "counted" if task.tokenizer else estimate,
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
