"""The stage: map -> plan -> write, and the evaluation set that is chosen once per channel.

`prepare` knows what the key depends on: the raw files' digests and the pinned evaluation set. Only when the
channel has none is text read before the key is known, since the set is then chosen from this very text.
"""

from __future__ import annotations

import dataclasses
import functools
import logging
from pathlib import Path
from typing import Any

from yanmo.common.errors import DataError
from yanmo.common.inputs import NONE
from yanmo.common.logs import Progress, human_bytes
from yanmo.common.options import by_kind
from yanmo.common.records import TEXT_FORM
from yanmo.common.stage_run import Finish, StageRun
from yanmo.common.store.commit import Attempt, Result
from yanmo.common.store.manifest import digest
from yanmo.common.store.output import Output, open_reference
from yanmo.common.store.pointers import create_pointer
from yanmo.curate import mapping
from yanmo.curate.config import CurateOptions
from yanmo.curate.corpus import Corpus
from yanmo.curate.evaluation_set import EvaluationSet, build_evaluation_set
from yanmo.curate.sources import Source, digest_files, find_files, iterate_excluded, sources_input
from yanmo.curate.text_options import MAP_OPTIONS, check_text_options, text_options
from yanmo.curate.train_split import write_documents

log = logging.getLogger(__name__)

EVALUATION_SET = "evaluation_set"
EVALUATION_SET_REVISION = 1
"""Raised when the same text and options give another evaluation set."""

_SPLIT_ONLY = {"test_characters", "valid_characters", "test_share", "valid_share", "min_split_documents"}


def prepare(run: StageRun) -> dict[str, Any]:
    """The raw files, the ids to take down and the evaluation set: what the key depends on."""
    options: CurateOptions = run.options
    check_text_options(options)
    sources = digest_files(run.store, find_files(options.sources))
    run.extra["sources"] = sources
    inputs: dict[str, Any] = {"sources": sources_input(sources)}
    run.extra["excluded"] = set(iterate_excluded(Path(options.exclude))) if options.exclude else set()
    if run.extra["excluded"]:
        inputs["exclude"] = {"content_digest": digest(sorted(run.extra["excluded"])), "uri": options.exclude}
    pinned = run.inputs["evaluation_set"]
    if pinned is None:
        pinned = _choose_evaluation_set(run, inputs)
    else:
        _check_pinned(pinned, options)
    run.extra[EVALUATION_SET] = pinned
    return {**inputs, EVALUATION_SET: pinned}


def _choose_evaluation_set(run: StageRun, inputs: dict[str, Any]) -> Output:
    """The evaluation set of this text, made the channel's unless another run was first."""
    options: CurateOptions = run.options
    named = MAP_OPTIONS | _SPLIT_ONLY | {"shard_characters"}
    semantic = {name: value for name, value in by_kind(options, "semantic").items() if name in named}

    def build(attempt: Attempt) -> Result:
        return build_evaluation_set(attempt, _corpus(run), options)

    part = run.part(EVALUATION_SET, EVALUATION_SET_REVISION, semantic, inputs, build)
    if options.pointer == NONE or options.evaluation_set == NONE:
        return part
    pinned = create_pointer(run.store, options.channel, EVALUATION_SET, part.reference)
    return open_reference(run.store, pinned)


def _check_pinned(pinned: Output, options: CurateOptions) -> None:
    form = pinned.manifest.metadata.get("text_form")
    if form != TEXT_FORM:
        raise DataError(
            f"{pinned}: the pinned evaluation set is in text form {form}, this curate writes {TEXT_FORM}; "
            "results would not be comparable: use another --channel, or choose a new set with "
            "--evaluation-set none"
        )
    chosen_with = pinned.manifest.options
    for name in sorted(_SPLIT_ONLY):
        if name in chosen_with and chosen_with[name] != getattr(options, name):
            log.warning(
                "--%s has no effect: evaluation set %s is pinned; it was chosen with %s",
                name.replace("_", "-"),
                pinned,
                chosen_with[name],
            )


def _corpus(run: StageRun) -> Corpus:
    """All mapped documents and which copies stay; read once per run."""
    if "corpus" not in run.extra:
        parts = _map_all(run)
        run.extra["corpus"] = Corpus.plan(parts, run.options, run.extra["excluded"])
    found: Corpus = run.extra["corpus"]
    return found


def _map_all(run: StageRun) -> list[Output]:
    sources: list[Source] = run.extra["sources"]
    total = sum(s.bytes for s in sources)
    log.info("reading %s from %d file(s)", human_bytes(total), len(sources))
    progress = Progress(log, "read", total, unit="B")
    return [_mapped(run, source, progress) for source in sorted(sources, key=lambda s: (s.name, s.sha256))]


def _mapped(run: StageRun, source: Source, progress: Progress) -> Output:
    options: CurateOptions = run.options
    semantic = {name: value for name, value in by_kind(options, "semantic").items() if name in MAP_OPTIONS}
    raw = {"content_digest": digest(source.identity), "uri": source.uri}
    build = functools.partial(
        mapping.build_mapped,
        source=source,
        options=text_options(options),
        workers=options.workers,
        batch_bytes=options.batch_bytes,
        on_bytes=progress.add,
    )
    return run.part("curate_map", mapping.REVISION, semantic, {"source": raw}, build)


def work(run: StageRun) -> Result:
    """Write train, and valid as the evaluation set has it; say what was dropped and why."""
    part: Output = run.extra[EVALUATION_SET]
    corpus = _corpus(run)
    held_out = EvaluationSet.open(part, run.options.overlap_characters)
    result = write_documents(run.attempt, corpus, held_out, run.options)
    _export(run, corpus)
    return dataclasses.replace(result, references={EVALUATION_SET: part})


def _export(run: StageRun, corpus: Corpus) -> None:
    read = run.telemetry.counter("documents_read", "Documents read", ("genre",))
    kept = run.telemetry.counter("documents_kept", "Documents in the train split", ("genre",))
    characters = run.telemetry.counter("characters_kept", "Characters in the train split", ("genre",))
    dropped = run.telemetry.counter("documents_dropped", "Documents dropped", ("reason",))
    malformed = run.telemetry.counter("lines_malformed", "Lines that were no document")
    tally = corpus.report.tally
    for genre in tally.genres("read"):
        read.labels(genre).inc(tally.documents("read", genre))
        kept.labels(genre).inc(tally.documents("train", genre))
        characters.labels(genre).inc(tally.characters("train", genre))
    for reason in corpus.reasons():
        dropped.labels(reason).inc(tally.documents(reason))
    malformed.inc(corpus.report.malformed)


def finish(run: StageRun, output: Output) -> Finish:
    """Documents and characters for the UI."""
    counts: dict[str, Any] = output.manifest.counts
    shown = {
        f"{split}_{what}": sum(counts[what][split].values()) for what in counts for split in counts[what]
    }
    return Finish(metadata={"documents": shown})
