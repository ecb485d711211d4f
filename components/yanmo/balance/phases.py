"""The stage: read the train split's table, write it by the quotas, pass valid through, say what changed."""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from yanmo.balance.config import BalanceOptions, Quota
from yanmo.balance.quotas import Picked, Rows, copy_id, pick, quotas_by_genre, read_rows
from yanmo.common.documents import take_rows, write_split
from yanmo.common.stage_run import Finish, StageRun
from yanmo.common.store.commit import Result
from yanmo.common.store.output import Output
from yanmo.common.text_table import text_table

log = logging.getLogger(__name__)


def work(run: StageRun) -> Result:
    """Write train by the quotas, valid as it came, and report.json."""
    options: BalanceOptions = run.options
    documents = run.input("documents")
    rows = read_rows(documents.paths("train-*.parquet"))
    genres = _genres(documents, rows)
    quotas = quotas_by_genre(options.quotas, genres)
    picked = pick(rows, quotas, options.max_repeats, options.seed)
    _write_train(run, documents, rows, picked)
    for path in documents.paths("valid-*.parquet"):
        shutil.copyfile(path, run.attempt.path(path.name))
        run.attempt.add(path.name)
    report = describe(rows, picked, quotas, genres)
    run.attempt.write("report.json", json.dumps(report, ensure_ascii=False, indent=1) + "\n", role="record")
    log_table(report)
    _export(run, report)
    valid = documents.manifest.counts
    counts = {
        what: {
            "train": {genre: report[genre]["after"][what] for genre in genres},
            "valid": valid[what]["valid"],
        }
        for what in ("documents", "characters")
    }
    return Result(counts=counts, metadata={**documents.manifest.metadata, "genres": genres})


def _genres(documents: Output, rows: Rows) -> list[str]:
    """The genres in train, in the order that curate noted."""
    have = set(rows.genre.tolist())
    noted = [genre for genre in documents.manifest.metadata.get("genres", []) if genre in have]
    return noted + sorted(have.difference(noted))


def _write_train(run: StageRun, documents: Output, rows: Rows, picked: Picked) -> None:
    paths = documents.paths("train-*.parquet")
    original = rows.id[picked.position]
    ids = np.array(
        [copy_id(id, copy) if copy else id for id, copy in zip(original, picked.copy.tolist(), strict=True)],
        dtype=object,
    )
    order = np.argsort(ids, kind="stable")
    ids, original, position = ids[order], original[order], picked.position[order]
    is_copy = picked.copy[order] > 0

    def columns(start: int, stop: int) -> dict[str, Any]:
        chosen = position[start:stop]
        table = take_rows(paths, rows.file[chosen], rows.row[chosen])
        copied = is_copy[start:stop]
        values: dict[str, Any] = {name: table[name] for name in table.column_names}
        values["id"] = ids[start:stop]
        for name, value in (("parent_id", original[start:stop]), ("rule", "repeat")):
            values[name] = _where(copied, value, table[name])
        return values

    write_split(run.attempt, "train", rows.characters[position], run.options.shard_characters, columns)


def _where(chosen: npt.NDArray[np.bool_], value: Any, column: pa.ChunkedArray) -> pa.Array:
    """`value` where `chosen`, else what `column` holds."""
    values = np.broadcast_to(np.asarray(value, dtype=object), chosen.shape)
    old = column.to_pylist()
    return pa.array([v if c else o for c, v, o in zip(chosen, values, old, strict=True)], pa.string())


def describe(rows: Rows, picked: Picked, quotas: Mapping[str, Quota], genres: list[str]) -> dict[str, Any]:
    """Documents, characters and shares of each genre before and after, and how near each quota was met."""
    genre = rows.genre[picked.position]
    characters = rows.characters[picked.position]
    all_before, all_after = int(rows.characters.sum()), int(characters.sum())
    report: dict[str, Any] = {}
    for name in genres:
        before, after = rows.of_genre(name), genre == name
        available, taken = int(rows.characters[before].sum()), int(characters[after].sum())
        wanted = quotas[name].characters(available) if name in quotas else available
        report[name] = {
            "quota": str(quotas.get(name, "")),
            "before": {"documents": len(before), "characters": available, "share": available / all_before},
            "after": {"documents": int(after.sum()), "characters": taken, "share": taken / max(all_after, 1)},
            "missing_characters": wanted - taken,
            "repeats": taken / max(available, 1),
        }
        if wanted != taken:
            log.warning(
                "%s: the quota of %s characters cannot be met exactly by its documents; %s taken",
                name,
                f"{wanted:,}",
                f"{taken:,}",
            )
    return report


def log_table(report: Mapping[str, Any]) -> None:
    """One line per genre: documents, characters and shares of the characters, before -> after."""
    rows = [["genre", "quota", "documents", "->", "characters", "->", "share %", "->"]]
    for genre, value in report.items():
        sides = value["before"], value["after"]
        numbers = [f"{side[what]:,}" for what in ("documents", "characters") for side in sides]
        shares = [f"{100 * side['share']:.1f}" for side in sides]
        rows.append([genre, value["quota"] or "all", *numbers, *shares])
    for line in text_table(rows):
        log.info("%s", line)


def _export(run: StageRun, report: Mapping[str, Any]) -> None:
    read = run.telemetry.counter("documents_read", "Documents read", ("genre",))
    kept = run.telemetry.counter("documents_kept", "Documents written, copies included", ("genre",))
    characters = run.telemetry.counter("characters_kept", "Characters written, copies included", ("genre",))
    for genre, value in report.items():
        read.labels(genre).inc(value["before"]["documents"])
        kept.labels(genre).inc(value["after"]["documents"])
        characters.labels(genre).inc(value["after"]["characters"])


def finish(run: StageRun, output: Output) -> Finish:
    """Documents and characters for the UI."""
    counts: dict[str, Any] = output.manifest.counts
    shown = {
        f"{split}_{what}": sum(counts[what][split].values()) for what in counts for split in counts[what]
    }
    return Finish(metadata={"documents": shown})
