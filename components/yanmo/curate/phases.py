"""The stage: map -> sign -> plan -> write, and the evaluation set that is chosen once per channel.

`prepare` finds what the key depends on: the digests of the raw files and the pinned evaluation set. Only if
the channel has no set is text read before the key is known, as the set is then chosen from this text.
"""

from __future__ import annotations

import dataclasses
import functools
import logging
from typing import Any

from yanmo.common.fork_server import preload
from yanmo.common.words import plural, some_of
from yanmo.curate.config import CurateOptions
from yanmo.curate.corpus import Corpus
from yanmo.curate.dry_run import benchmarks_of, show_plan
from yanmo.curate.likely_form import with_likely_form
from yanmo.curate.mapped_corpus import IN_WORKERS, CurateRun, Handed, corpus_of, rules_input
from yanmo.curate.report import PAGE
from yanmo.curate.sources.listing import BENCHMARK_FORMS, digest_files, find_files, sources_input
from yanmo.curate.split.evaluation_set import EvaluationSet
from yanmo.curate.split.pinned_set import (
    EVALUATION_SET,
    check_pinned,
    choose_evaluation_set,
    pin_chosen,
)
from yanmo.curate.split.train_split import write_documents
from yanmo.curate.tally import sort_genres
from yanmo.curate.text.record_rules import check_record_rules
from yanmo.engine.maps import FEW, begin, start_workers, tasks_at_a_time
from yanmo.formats.licenses import Allowed
from yanmo.nights.observer import NightObserver
from yanmo.stage.excluded import digest_of, excluded_ids
from yanmo.stage.stage_run import Finish, KeyInput, Prepared, Steps
from yanmo.store.commit import Result
from yanmo.store.manifest import digest
from yanmo.store.output import Output

log = logging.getLogger(__name__)


def settle(run: CurateRun) -> CurateOptions:
    """Return the options, with the text form and the number of workers where nobody gave them."""
    begin(run.options, run.store)
    options = with_likely_form(run)
    return dataclasses.replace(options, workers=tasks_at_a_time(options.workers))


def prepare(run: CurateRun) -> Prepared[Handed]:
    """Return the raw files, the ids to take down and the evaluation set: what the key depends on."""
    made = Handed([])
    if run.options.dry_run:
        show_plan(run, made, lambda: _prepare(run, made))
    return _prepare(run, made)


def _prepare(run: CurateRun, made: Handed) -> Prepared[Handed]:
    options = run.options
    check_record_rules(options)
    preload(*IN_WORKERS)
    files = find_files(options.sources, follow_links=options.follow_links)
    made.sources = sources = digest_files(run.store, files, functools.partial(_expect, options))
    inputs: dict[str, KeyInput] = {"sources": sources_input(sources), **rules_input(options)}
    made.excluded = excluded_ids(options.exclude, options)
    if made.excluded:
        inputs["exclude"] = {"content_digest": digest_of(made.excluded), "uri": options.exclude}
    if options.allow_licenses.strip():
        made.allowed = Allowed.of(options.allow_licenses)
        names = digest(sorted(made.allowed.folded))
        inputs["licenses"] = {"content_digest": names, "uri": made.allowed.shown}
    if options.benchmarks:
        links = options.follow_links
        found = find_files(options.benchmarks, BENCHMARK_FORMS, "--benchmarks", follow_links=links)
        made.benchmarks = digest_files(run.store, found)
        inputs["benchmarks"] = sources_input(made.benchmarks)
    pinned = run.inputs["evaluation_set"]
    if pinned is None:
        pinned = choose_evaluation_set(run, made, inputs)
    else:
        check_pinned(pinned, options)
    made.evaluation_set = pinned
    return Prepared(made, {**inputs, EVALUATION_SET: pinned})


def _expect(options: CurateOptions, new_bytes: int) -> None:
    """Start the workers while a large new file is being hashed."""
    if new_bytes > FEW * options.batch_bytes:
        start_workers(options.workers, new_bytes // options.batch_bytes)


def work(run: CurateRun) -> Result:
    """Write train, and valid from the evaluation set; report what was dropped and why."""
    part, corpus = run.prepared.evaluation_set, corpus_of(run, run.prepared)
    assert part is not None  # `prepare` ends with one
    held_out = EvaluationSet.open(part, run.options.split_by)
    have = part.manifest.counts["documents"]["test"]
    if new := sort_genres(corpus.genres_of("kept") - have.keys()):
        log.warning(
            "of genre %s nothing is held out, as the channel's evaluation set was chosen without it; "
            "another --channel chooses one of its own, with all genres",
            some_of(new),
        )
    if not corpus.number_of(held_out.holds(corpus, 0)):
        log.warning(
            "none of the %s of %s is in --sources: channel %r was begun with other text, and models of "
            "this text are measured on that one; another --channel or --store measures them on their own",
            plural(len(held_out.texts), "text"),
            part,
            run.options.channel,
        )
    benchmarks = benchmarks_of(run.options, run.prepared)
    result = write_documents(run.attempt, corpus, held_out, benchmarks, run.options)
    _export(run, corpus)
    return dataclasses.replace(result, references={EVALUATION_SET: part}, used=run.prepared.read)


def _export(run: CurateRun, corpus: Corpus) -> None:
    tally, telemetry = corpus.report.tally, run.telemetry
    for genre in tally.genres("read"):
        telemetry.add("documents_read", tally.documents("read", genre), genre=genre)
        telemetry.add("documents_kept", tally.documents("train", genre), genre=genre)
        telemetry.add("characters_kept", tally.characters("train", genre), genre=genre)
    for reason in corpus.reasons():
        telemetry.add("documents_dropped", tally.documents(reason), reason=reason)
    telemetry.add("lines_malformed", corpus.report.malformed)


def finish(run: CurateRun, output: Output) -> Finish:
    """Pins the evaluation set that was chosen; documents, characters and the page for the UI."""
    assert run.prepared.evaluation_set is not None
    pin_chosen(run, run.prepared.evaluation_set)
    counts: dict[str, Any] = output.manifest.counts
    shown = {
        f"{split}_{what}": sum(counts[what][split].values()) for what in counts for split in counts[what]
    }
    return Finish(metadata={"documents": shown}, artifacts={"report": output.path(PAGE)})


STEPS = Steps(work, settle=settle, prepare=prepare, finish=finish, observer=NightObserver)
