"""The stage: map -> sign -> plan -> write, and the evaluation set that is chosen once per channel.

`prepare` finds what the key depends on: the digests of the raw files and the pinned evaluation set. Only if
the channel has no set is text read before the key is known, as the set is then chosen from this text.
"""

from __future__ import annotations

import dataclasses
import functools
import logging
from collections.abc import Sequence
from typing import Any, NoReturn

from yanmo.common.errors import DataError, StorageError, UsageError
from yanmo.common.fork_server import preload
from yanmo.common.logs import Progress, human_bytes
from yanmo.common.ordered_map import FEW, start_workers
from yanmo.curate import mapping
from yanmo.curate.config import CurateOptions
from yanmo.curate.corpus import Corpus
from yanmo.curate.duplicates import near_duplicates, signing
from yanmo.curate.duplicates.near_duplicates import Edges
from yanmo.curate.left_out import allowed_licenses, keep_allowed, left_out_inputs
from yanmo.curate.left_out import names_of as names_of_licenses
from yanmo.curate.likely_form import settle
from yanmo.curate.sources.bundles import bundles
from yanmo.curate.sources.cutting import announce_layouts
from yanmo.curate.sources.listing import (
    BENCHMARK_FORMS,
    Source,
    digest_files,
    find_files,
    sources_input,
)
from yanmo.curate.split.benchmark_files import benchmark_texts
from yanmo.curate.split.evaluation_set import EvaluationSet, build_evaluation_set
from yanmo.curate.split.extended_set import add_confirmation, add_genres, new_genres
from yanmo.curate.split.train_split import write_documents
from yanmo.curate.text.normalize import REVISIONS
from yanmo.curate.text.record_rules import check_record_rules, max_record_bytes, record_rules
from yanmo.formats.records import CONFIRM
from yanmo.options.fields import NONE, Only, Scalar, names_of
from yanmo.stage.stage_run import Finish, KeyInput, Prepared, Skip, StageRun, Steps
from yanmo.stage.taken_down import left_out_ids
from yanmo.store.channel.licenses import Allowed
from yanmo.store.commit import Attempt, Result
from yanmo.store.manifest import digest
from yanmo.store.output import Output, open_reference
from yanmo.store.pointers import create_pointer, read_pointer, swap_pointer

log = logging.getLogger(__name__)

EVALUATION_SET = "evaluation_set"
EVALUATION_SET_REVISION = 4
"""Raised when the same text and options give another evaluation set."""

MAP = ("",)
"""The first phase: options declare no `phase` for it."""
ADDED = (*MAP, "clusters", "confirm", "files")
"""Phases whose options an added confirmation split depends on."""
CHOSEN = (*ADDED, "split")
"""Phases whose options an evaluation set depends on."""
IN_WORKERS = (
    "yanmo.curate.duplicates.signing",
    "yanmo.curate.mapping",
    "yanmo.curate.split.containment",
    "yanmo.curate.document_files",
)
"""Modules that workers need, for their fork server to import."""
_READ = (*MAP, "clusters", "checks")
"""Phases whose options the corpus depends on; checks only refuse it."""


@dataclasses.dataclass
class Handed:
    """What `prepare` hands to the work."""

    sources: list[Source]
    excluded: frozenset[str] = frozenset()
    """Ids to take down."""
    allowed: Allowed | None = None
    """Licences that the channel allows; None for all."""
    benchmarks: list[Source] = dataclasses.field(default_factory=list)
    corpus: Corpus | None = None
    """Read once, by the first who asks for it."""
    read: list[Output] = dataclasses.field(default_factory=list)
    """What it was read from: the mapped files and their band keys, which the next night uses again."""
    evaluation_set: Output | None = None


CurateRun = StageRun[CurateOptions, Handed]


def prepare(run: CurateRun) -> Prepared[Handed]:
    """The raw files, the ids to take down and the evaluation set: what the key depends on."""
    options = run.options
    check_record_rules(options)
    preload(*IN_WORKERS)
    sources = digest_files(run.store, find_files(options.sources), functools.partial(_expect, options))
    made = Handed(sources)
    if options.shard:
        _map_shard(run, made)
    inputs: dict[str, KeyInput] = {"sources": sources_input(sources), **_form_input(options)}
    made.excluded = left_out_ids(run.store, options.channel, options.exclude, options)
    made.allowed = allowed_licenses(run.store, options)
    inputs |= left_out_inputs(options, made.excluded, made.allowed)
    if options.benchmarks:
        found = find_files(options.benchmarks, BENCHMARK_FORMS, "--benchmarks")
        made.benchmarks = digest_files(run.store, found)
        inputs["benchmarks"] = sources_input(made.benchmarks)
    pinned = run.inputs["evaluation_set"]
    if options.adding:
        _add(run, made, pinned, inputs)
    if pinned is None:
        pinned = _choose_evaluation_set(run, made, inputs)
    else:
        _check_pinned(pinned, options)
    made.evaluation_set = pinned
    return Prepared(made, {**inputs, EVALUATION_SET: pinned})


def _form_input(options: CurateOptions) -> dict[str, KeyInput]:
    """The rules of the text form, where they are not the first ones of its name."""
    revision = REVISIONS.get(options.text_form)
    name = f"{options.text_form}, revision {revision}"
    return {"text_form": {"content_digest": digest(name), "uri": name}} if revision else {}


def of_phases(options: CurateOptions, phases: tuple[str, ...]) -> tuple[dict[str, Scalar], Any]:
    """The options of these phases for a part's key, and an object in which only they can be read."""
    named = names_of(type(options), kind="semantic", phase=phases)
    unkeyed = names_of(type(options), kind=("execution", "environment"))
    return {name: getattr(options, name) for name in sorted(named)}, Only(options, {*named, *unkeyed})


def _expect(options: CurateOptions, new_bytes: int) -> None:
    """Start the workers while a large new file is being hashed."""
    if new_bytes > FEW * options.batch_bytes:
        start_workers(options.workers)


def _choose_evaluation_set(run: CurateRun, made: Handed, inputs: dict[str, KeyInput]) -> Output:
    """The evaluation set chosen from this text, pinned for the channel unless another run was first."""
    options = run.options
    semantic, of_the_key = of_phases(options, CHOSEN)

    def build(attempt: Attempt) -> Result:
        return build_evaluation_set(attempt, _corpus(run, made), of_the_key)

    inputs = {name: value for name, value in inputs.items() if name != "benchmarks"}
    part = run.part(EVALUATION_SET, EVALUATION_SET_REVISION, semantic, inputs, build)
    if options.pointer == NONE or options.evaluation_set == NONE:
        return part
    pinned = create_pointer(run.store, options.channel, EVALUATION_SET, part.reference)
    return open_reference(run.store, pinned)


def _add(run: CurateRun, made: Handed, pinned: Output | None, inputs: dict[str, KeyInput]) -> NoReturn:
    """Pin a set with the same files and more, chosen from this text: see split/extended_set.py."""
    options = run.options
    if pinned is None:
        raise DataError(
            f"channel {options.channel!r} of {run.store.uri} has no evaluation set to add to; its first "
            "`yanmo curate` chooses one, with all genres and a confirmation split"
        )
    if options.add_confirmation and pinned.entries(f"{CONFIRM}-*.parquet"):
        raise Skip(f"{pinned} already has a confirmation split")
    if options.pointer != NONE:
        _check_is_channels(run, pinned)
    _check_form(pinned, options)
    if options.add_genres and not new_genres(pinned, _corpus(run, made)):
        raise Skip(f"{pinned} already has texts of every genre of --sources")
    semantic, of_the_key = of_phases(options, ADDED if options.add_confirmation else CHOSEN)
    add = add_confirmation if options.add_confirmation else add_genres

    def build(attempt: Attempt) -> Result:
        corpus = _corpus(run, made)
        known = EvaluationSet.open(pinned, options.split_by)
        is_held = known.holds(corpus, options.near_duplicate_similarity, options.workers)
        return add(attempt, pinned, corpus, is_held, of_the_key)

    inputs = {name: value for name, value in inputs.items() if name != "benchmarks"}
    part = run.part(
        EVALUATION_SET, EVALUATION_SET_REVISION, semantic, {**inputs, EVALUATION_SET: pinned}, build
    )
    log.info("%s: %s with %s", part, pinned, _more(part, pinned))
    if options.pointer == NONE:
        raise Skip(f"--pointer none: {part} is not pinned")
    if not swap_pointer(run.store, options.channel, EVALUATION_SET, pinned.reference, part.reference):
        now = read_pointer(run.store, options.channel, EVALUATION_SET)
        if now != part.reference:
            raise StorageError(
                f"the evaluation set of channel {options.channel!r} is not {pinned} any more (another run "
                "pinned one meanwhile); nothing was moved: run the same command again"
            )
    raise Skip(
        f"{part} is pinned, and {options.adding} makes nothing else; the next `yanmo curate` of channel "
        f"{options.channel!r} keeps the new texts out of training"
    )


def _more(part: Output, pinned: Output) -> str:
    """What a set has more than the one that it was made from, in words."""
    before = pinned.manifest.counts["documents"]
    added = {
        split: {genre: number for genre, number in of.items() if genre not in before.get(split, {})}
        for split, of in part.manifest.counts["documents"].items()
    }
    return "; ".join(
        f"{split}: {sum(of.values())} new texts ({', '.join(f'{g} {n}' for g, n in of.items())})"
        for split, of in added.items()
        if of
    )


def _check_is_channels(run: CurateRun, pinned: Output) -> None:
    """Refuse, before any work, to add to a set that is not the channel's: its pointer could not be moved.

    A set that an earlier attempt made from it already belongs to the channel.
    """
    channel = run.options.channel
    now = read_pointer(run.store, channel, EVALUATION_SET)
    if now == pinned.reference:
        return
    made_from = open_reference(run.store, now).manifest.inputs.get(EVALUATION_SET) if now else None
    if made_from and made_from.get("content_digest") == pinned.content_digest:
        return
    found = f"{now.stage}/{now.key[:12]}" if now else "not set"
    raise UsageError(
        f"{run.options.adding}: --evaluation-set names {pinned}, expected the set of channel {channel!r} "
        f"({found}); leave --evaluation-set out, or give --pointer none to make the set without pinning it"
    )


def _check_form(pinned: Output, options: CurateOptions) -> None:
    form = pinned.manifest.metadata.get("text_form")
    wanted = record_rules(options).form
    if form != wanted:
        raise DataError(
            f"{pinned}: the pinned evaluation set is in text form {form}, this run writes {wanted}; "
            "results would not be comparable: use another --channel, or choose a new set with "
            "--evaluation-set none"
        )


def _check_pinned(pinned: Output, options: CurateOptions) -> None:
    _check_form(pinned, options)
    chosen_with = pinned.manifest.options
    for name in sorted(names_of(CurateOptions, phase=("confirm", "split"))):
        if name in chosen_with and chosen_with[name] != getattr(options, name):
            log.warning(
                "--%s has no effect: evaluation set %s is pinned; it was chosen with %s",
                name.replace("_", "-"),
                pinned,
                chosen_with[name],
            )


def _corpus(run: CurateRun, made: Handed) -> Corpus:
    """All mapped documents and which copies stay; read once per run."""
    if made.corpus is None:
        options = run.options
        mapped = _map_all(run, bundles(_sorted(made.sources)))
        signed = [_signed(run, part) for part in mapped]
        made.read = [*mapped, *signed]
        corpus = Corpus.read(mapped, signed, of_phases(options, _READ)[1], made.allowed)
        if options.near_duplicate_similarity:
            corpus.drop_near_duplicates(_similar(run, corpus, mapped, made.allowed))
        if made.excluded:
            corpus.take_down(made.excluded)
        if made.allowed:
            corpus.drop_forbidden(made.allowed)
        corpus.check_genres(options)
        made.corpus = corpus
    return made.corpus


def _map_shard(run: CurateRun, made: Handed) -> NoReturn:
    """Map and sign a part of the sources, for a later run to find: what a pod of a ParallelFor does."""
    options = run.options
    part, count = map(int, options.shard.split("/"))
    chosen = bundles(_sorted(made.sources))[part - 1 :: count]
    for mapped in _map_all(run, chosen):
        _signed(run, mapped)
    files = sum(map(len, chosen))
    raise Skip(f"part {options.shard} is mapped, {files} of {len(made.sources)} file(s)")


def _sorted(sources: Sequence[Source]) -> list[Source]:
    return sorted(sources, key=lambda s: (s.name, s.sha256))


def _map_all(run: CurateRun, chosen: Sequence[tuple[Source, ...]]) -> list[Output]:
    sources = [source for bundle in chosen for source in bundle]
    total = sum(s.bytes for s in sources)
    run.telemetry.set("source_bytes", total)
    log.info("reading %s from %d file(s)", human_bytes(total), len(sources))
    announce_layouts(sources, record_rules(run.options).reading)
    progress = Progress(log, "read", total, unit="B")
    mapped = [_mapped(run, bundle, progress) for bundle in chosen]
    progress.end()  # of bundles that were mapped by an earlier run nothing is read
    return mapped


def _signed(run: CurateRun, mapped: Output) -> Output:
    """The band keys of a mapped file's documents."""
    build = functools.partial(signing.build_signed, mapped=mapped, workers=run.options.workers)
    return run.part("curate_sign", signing.REVISION, {}, {"mapped": mapped}, build)


def _similar(run: CurateRun, corpus: Corpus, mapped: Sequence[Output], allowed: Allowed | None) -> Edges:
    """The pairs of near duplicates in the corpus."""
    options = run.options
    build = functools.partial(
        near_duplicates.build_edges,
        mapped=corpus.paths,
        signed=corpus.signed,
        candidates=corpus.candidates,
        unique=corpus.copies.unique,
        similarity=options.near_duplicate_similarity,
        workers=options.workers,
    )
    revision = [near_duplicates.REVISION, signing.REVISION]
    semantic: dict[str, Any] = {"similarity": options.near_duplicate_similarity, "revision": revision}
    if allowed:  # which copy is the best depends on it
        semantic["licenses"] = names_of_licenses(allowed)
    digests = digest([part.content_digest for part in mapped])
    inputs = {"mapped": {"content_digest": digests, "uri": f"{len(mapped)} mapped files"}}
    part = run.part("curate_similar", near_duplicates.REVISION, semantic, inputs, build)
    return Edges.read(part.path("edges.parquet"))


def _mapped(run: CurateRun, bundle: tuple[Source, ...], progress: Progress) -> Output:
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
    inputs = {"source": raw, **_form_input(options)}
    return run.part("curate_map", mapping.REVISION, semantic, inputs, build)


def work(run: CurateRun) -> Result:
    """Write train, and valid from the evaluation set; report what was dropped and why."""
    part, corpus = run.prepared.evaluation_set, _corpus(run, run.prepared)
    assert part is not None  # `prepare` ends with one
    held_out = EvaluationSet.open(part, run.options.split_by)
    if new := new_genres(part, corpus):
        log.warning(
            "of genre %s nothing is held out, as the channel's evaluation set was chosen without it; "
            "`yanmo curate --add-genres` with the same --sources adds it to the set",
            ", ".join(new),
        )
    if not held_out.holds(corpus, 0, run.options.workers).any():
        log.warning(
            "none of the %d texts of %s is in --sources: channel %r was begun with other text, and models of "
            "this text are measured on that one; another --channel or --store measures them on their own",
            len(held_out.texts),
            part,
            run.options.channel,
        )
    benchmarks = benchmark_texts(
        run.prepared.benchmarks,
        run.options.overlap_characters,
        max_record_bytes(run.options.max_characters),
    )
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
    """Documents and characters for the UI."""
    keep_allowed(run.store, run.options)
    counts: dict[str, Any] = output.manifest.counts
    shown = {
        f"{split}_{what}": sum(counts[what][split].values()) for what in counts for split in counts[what]
    }
    return Finish(metadata={"documents": shown})


STEPS = Steps(work, settle=settle, prepare=prepare, finish=finish)
