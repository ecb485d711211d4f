"""The stage: map -> sign -> near duplicates -> plan -> write, and the evaluation set of the channel.

`prepare` finds what the key depends on: the digests of the raw files and the pinned evaluation set. Only if
the channel has no set is text read before the key is known, as the set is then chosen from this text. What
becomes of a file is a part with a key of its own, which an earlier run may have made; the corpus is read from
these parts once per run, by the first who asks.
"""

from __future__ import annotations

import dataclasses
import functools
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from yanmo.common.child_processes import preload
from yanmo.common.freed_memory import trim_heap
from yanmo.common.logs import Progress, human_bytes
from yanmo.common.words import plural, some_of
from yanmo.curate import mapping
from yanmo.curate.config import MAP, CurateOptions, of_phases
from yanmo.curate.corpus import Corpus, Handed
from yanmo.curate.dry_run import benchmarks_of, show_plan
from yanmo.curate.duplicates import near_duplicates
from yanmo.curate.likely_form import with_likely_form
from yanmo.curate.limits import reasons_in
from yanmo.curate.map_report import sort_genres
from yanmo.curate.report import PAGE
from yanmo.curate.sources.cutting import announce_layouts
from yanmo.curate.sources.listing import Source, bundles, digest_files, find_files, sources_input
from yanmo.curate.split.evaluation_set import EvaluationSet
from yanmo.curate.split.pinned_set import (
    EVALUATION_SET,
    check_pinned,
    choose_evaluation_set,
    pin_chosen,
)
from yanmo.curate.split.train_split import write_documents
from yanmo.curate.text.normalize import REVISIONS
from yanmo.curate.text.plugin_filters import key_of, plugin_filters
from yanmo.curate.text.record_rules import check_record_rules, record_rules
from yanmo.engine.maps import begin, each, tasks_at_a_time
from yanmo.formats.licenses import Allowed
from yanmo.nights.observer import NightObserver
from yanmo.stage.excluded import digest_of, excluded_ids
from yanmo.stage.stage_run import Finish, KeyInput, Prepared, StageRun, Steps
from yanmo.store.commit import Result
from yanmo.store.manifest import digest
from yanmo.store.output import Output

log = logging.getLogger(__name__)

_READ = (*MAP, "clusters", "checks")
"""Phases whose options the corpus depends on; checks only refuse it."""
_IN_WORKERS = (
    "yanmo.curate.mapping",
    "yanmo.curate.split.containment",
    "yanmo.curate.document_files",
    "yanmo.engine.row_pieces",
)
"""Modules that workers need, for their fork server to import."""
CurateRun = StageRun[CurateOptions, Handed]


def settle(run: CurateRun) -> CurateOptions:
    """Return the options, with the text form and the number of workers where nobody gave them."""
    if not run.options.dry_run:  # which writes to a folder of this machine, that no cluster sees
        begin(run.options, run.store)
    options = with_likely_form(run)
    return dataclasses.replace(options, workers=tasks_at_a_time(options.workers))


def prepare(run: CurateRun) -> Prepared[Handed]:
    """Return the raw files, the ids to take down and the evaluation set: what the key depends on."""
    made = Handed()
    if run.options.dry_run:
        show_plan(run, made, lambda: _prepare(run, made), lambda: corpus_of(run, made))
    return _prepare(run, made)


def _prepare(run: CurateRun, made: Handed) -> Prepared[Handed]:
    options = run.options
    check_record_rules(options)
    preload(*_IN_WORKERS)
    files = find_files(options.sources, follow_links=options.follow_links)
    made.sources = sources = digest_files(run.store, files, again=options.force)
    inputs: dict[str, KeyInput] = {"sources": sources_input(sources), **rules_input(options)}
    made.excluded = excluded_ids(options.exclude, options)
    if made.excluded:
        inputs["exclude"] = {"content_digest": digest_of(made.excluded), "uri": options.exclude}
    if options.allow_licenses.strip():
        made.allowed = Allowed.of(options.allow_licenses)
        names = digest(sorted(made.allowed.folded))
        inputs["licenses"] = {"content_digest": names, "uri": made.allowed.shown}
    if options.benchmarks:
        found = find_files(options.benchmarks, "--benchmarks", follow_links=options.follow_links)
        made.benchmarks = digest_files(run.store, found, again=options.force)
        inputs["benchmarks"] = sources_input(made.benchmarks)
    pinned = run.inputs["evaluation_set"]
    if pinned is None:
        pinned = choose_evaluation_set(run, lambda: corpus_of(run, made), inputs)
    else:
        check_pinned(pinned, options)
    made.evaluation_set = pinned
    return Prepared(made, {**inputs, EVALUATION_SET: pinned})


def rules_input(options: CurateOptions) -> dict[str, KeyInput]:
    """Return the key's part for rules that no option says: text forms, filters of other packages.

    Nothing where the text form has the first rules of its name and no package's filter is asked for.
    """
    revision = REVISIONS.get(options.text_form)
    name = f"{options.text_form}, revision {revision}"
    found: dict[str, KeyInput] = {}
    if revision:
        found["text_form"] = {"content_digest": digest(name), "uri": name}
    if filters := plugin_filters(options.plugin_filters):
        identity, shown = key_of(filters)
        found["plugins"] = {"content_digest": digest(identity), "uri": shown}
    return found


def corpus_of(run: CurateRun, made: Handed) -> Corpus:
    """Return all mapped documents and which copies stay; read once per run."""
    if made.corpus is None:
        options = run.options
        mapped = _map_all(run, bundles(sorted(made.sources, key=lambda s: (s.name, s.sha256))))
        made.read = mapped
        trim_heap()
        corpus = Corpus.read(mapped, of_phases(options, _READ)[1], made.allowed)
        if options.near_duplicate_similarity:
            corpus.drop_near_duplicates(_similar(run, corpus, mapped, made.allowed))
        if made.excluded:
            corpus.take_down(made.excluded)
        if made.allowed:
            corpus.drop_forbidden(made.allowed)
        made.corpus = corpus
    return made.corpus


def _map_all(run: CurateRun, chosen: Sequence[tuple[Source, ...]]) -> list[Output]:
    sources = [source for bundle in chosen for source in bundle]
    total = sum(s.bytes for s in sources)
    run.telemetry.set("source_bytes", total)
    log.info("reading %s from %d file(s)", human_bytes(total), len(sources))
    announce_layouts(sources, record_rules(run.options).reading, run.options.max_characters)
    progress = Progress(log, "read", total, unit="B")
    mapped = each(functools.partial(_mapped, run, progress), chosen, run.options.workers)
    progress.end()  # of bundles that were mapped by an earlier run nothing is read
    return mapped


def _similar(run: CurateRun, corpus: Corpus, mapped: Sequence[Output], allowed: Allowed | None) -> Path:
    """Return the file of the pairs of near duplicates in the corpus."""
    options = run.options
    build = functools.partial(
        near_duplicates.build_edges,
        mapped=corpus.paths,
        signed=corpus.signed,
        tables=corpus.tables,
        similarity=options.near_duplicate_similarity,
        workers=options.workers,
    )
    semantic: dict[str, Any] = {"similarity": options.near_duplicate_similarity}
    if allowed:  # which copy is the best depends on it
        semantic["licenses"] = sorted(allowed.folded)
    digests = digest([part.content_digest for part in mapped])
    inputs = {"mapped": {"content_digest": digests, "uri": f"{len(mapped)} mapped files"}}
    part = run.part("curate_similar", near_duplicates.REVISION, semantic, inputs, build)
    return part.path("edges.parquet")


def _mapped(run: CurateRun, progress: Progress, bundle: tuple[Source, ...]) -> Output:
    options = run.options
    semantic, of_the_key = of_phases(options, MAP)
    first = bundle[0]
    identity = first.identity if len(bundle) == 1 else [source.identity for source in bundle]
    more = f" and {len(bundle) - 1} more" if len(bundle) > 1 else ""
    raw = {"content_digest": digest(identity), "uri": f"{first.uri}{more}"}
    build = functools.partial(
        mapping.build_mapped,
        sources=bundle,
        options=record_rules(of_the_key),
        workers=options.workers,
        batch_bytes=options.batch_bytes,
        on_bytes=progress.add,
    )
    inputs = {"source": raw, **rules_input(options)}
    return run.part("curate_map", mapping.REVISION, semantic, inputs, build)


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
    for reason in reasons_in(corpus.report):
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
