"""From raw files to the corpus of a run: map -> sign -> near duplicates, each a part with a key of its own.

Parts that an earlier run made are found again; the corpus is read once per run, by the first who asks.
"""

from __future__ import annotations

import dataclasses
import functools
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from yanmo.common.freed_memory import trim_heap
from yanmo.common.logs import Progress, human_bytes
from yanmo.curate import mapping
from yanmo.curate.config import CurateOptions
from yanmo.curate.corpus import Corpus
from yanmo.curate.duplicates import near_duplicates, signing
from yanmo.curate.sources.cutting import announce_layouts
from yanmo.curate.sources.listing import Source, bundles
from yanmo.curate.text.normalize import REVISIONS
from yanmo.curate.text.plugin_filters import key_of, plugin_filters
from yanmo.curate.text.record_rules import record_rules
from yanmo.engine.maps import each
from yanmo.formats.licenses import Allowed
from yanmo.options.fields import Only, Scalar, by_kind, names_of
from yanmo.stage.stage_run import KeyInput, StageRun
from yanmo.store.manifest import digest
from yanmo.store.output import Output

log = logging.getLogger(__name__)

MAP = ("",)
"""The first phase: options declare no `phase` for it."""
IN_WORKERS = (
    "yanmo.curate.duplicates.signing",
    "yanmo.curate.mapping",
    "yanmo.curate.split.containment",
    "yanmo.curate.document_files",
    "yanmo.formats.row_pieces",
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


def of_phases(options: CurateOptions, phases: tuple[str, ...]) -> tuple[dict[str, Scalar], Any]:
    """Return the options of these phases for a part's key, and an object in which only they can be read."""
    named = names_of(type(options), kind="semantic", phase=phases)
    unkeyed = names_of(type(options), kind=("execution", "environment"))
    keyed = {name: value for name, value in by_kind(options, "semantic").items() if name in named}
    return keyed, Only(options, {*named, *unkeyed})


def corpus_of(run: CurateRun, made: Handed) -> Corpus:
    """Return all mapped documents and which copies stay; read once per run."""
    if made.corpus is None:
        options = run.options
        mapped = _map_all(run, bundles(_sorted(made.sources)))
        signed = each(functools.partial(_signed, run), mapped, options.workers)
        made.read = [*mapped, *signed]
        trim_heap()
        corpus = Corpus.read(mapped, signed, of_phases(options, _READ)[1], made.allowed)
        if options.near_duplicate_similarity:
            corpus.drop_near_duplicates(_similar(run, corpus, mapped, made.allowed))
        if made.excluded:
            corpus.take_down(made.excluded)
        if made.allowed:
            corpus.drop_forbidden(made.allowed)
        made.corpus = corpus
    return made.corpus


def _sorted(sources: Sequence[Source]) -> list[Source]:
    return sorted(sources, key=lambda s: (s.name, s.sha256))


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


def _signed(run: CurateRun, mapped: Output) -> Output:
    """Return the band keys of a mapped file's documents."""
    build = functools.partial(signing.build_signed, mapped=mapped, workers=run.options.workers)
    return run.part("curate_sign", signing.REVISION, {}, {"mapped": mapped}, build)


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
    revision = [near_duplicates.REVISION, signing.REVISION]
    semantic: dict[str, Any] = {"similarity": options.near_duplicate_similarity, "revision": revision}
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
