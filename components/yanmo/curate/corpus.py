"""All mapped documents of a run: which copies stay, and the checks that nothing was lost unnoticed."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from yanmo.common.documents import take_rows
from yanmo.common.errors import DataError
from yanmo.common.store.output import Output
from yanmo.curate.config import CurateOptions
from yanmo.curate.filter_sets import REASONS
from yanmo.curate.mapping import MapReport
from yanmo.curate.parsing import genre_name
from yanmo.curate.plan import Candidates, Copies, drop_copies, read_candidates
from yanmo.curate.tally import EXAMPLES
from yanmo.curate.text_options import allowed_shares

log = logging.getLogger(__name__)

Ints = npt.NDArray[np.int64]

PLAN_REASONS = ("duplicate", "excluded", "evaluation_set", "overlap")
"""Why a document that passed the filters is not in train: a copy of another one, taken down, held out, or
sharing a run of characters with the evaluation set."""

_FEW_DOCUMENTS = 100
"""A genre of fewer documents may lose more than the allowed share to a filter."""


@dataclass(frozen=True, kw_only=True)
class Corpus:
    """The documents that passed the filters, without copies and without what was taken down."""

    paths: list[Path]
    candidates: Candidates
    kept: Ints
    """Indexes into the candidates, in the order of their clusters' digests."""
    cluster_sizes: Ints
    report: MapReport
    excluded_ids: frozenset[str] = frozenset()
    excluded_clusters: frozenset[str] = frozenset()
    """What was to be taken down."""
    examples: dict[str, Ints] = field(default_factory=dict)
    """Reason -> candidates to be shown for it by `show_examples`."""

    @classmethod
    def plan(cls, parts: Sequence[Output], options: CurateOptions, excluded: set[str]) -> Corpus:
        """From the mapped files; checks the allowed shares.

        Raises:
            DataError: nothing is left, too much was malformed or filtered, or a required genre is missing.
        """
        report = MapReport()
        for part in parts:
            report.merge(
                MapReport.from_json(json.loads(part.path("report.json").read_text(encoding="utf-8")))
            )
        _check_malformed(report, options)
        _check_filters(report, options)
        paths = [path for part in parts for path in part.paths("mapped-*.parquet")]
        candidates = read_candidates(paths)
        if not len(candidates):
            raise DataError(f"no document passed the filters: {_summary(report)}")
        copies = drop_copies(candidates)
        corpus = cls(
            paths=paths,
            candidates=candidates,
            kept=copies.kept,
            cluster_sizes=copies.sizes,
            report=report,
        )
        corpus.count("duplicate", copies.dropped)
        corpus = corpus._without(excluded, copies) if excluded else corpus
        _check_genres(corpus, options)
        return corpus

    def reasons(self) -> list[str]:
        """Every reason for which a document was dropped, in the order of checking."""
        return [r for r in (*REASONS, *PLAN_REASONS) if r in self.report.tally.counts]

    def rows(self, chosen: Ints, columns: Sequence[str] | None = None) -> pa.Table:
        """The mapped rows of the candidates `chosen`, in that order."""
        return take_rows(self.paths, self.candidates.file[chosen], self.candidates.row[chosen], columns)

    def count(self, name: str, chosen: Ints) -> None:
        """Count the candidates `chosen` under `name`; note examples when it is a reason to drop them."""
        tally, c = self.report.tally, self.candidates
        for genre in sorted(set(c.genre[chosen].tolist())):
            of_genre = chosen[c.genre[chosen] == genre]
            tally.add(name, genre, len(of_genre), int(c.characters[of_genre].sum()))
        if name in PLAN_REASONS and len(chosen):
            self.examples[name] = chosen[np.argsort(c.id[chosen], kind="stable")[:EXAMPLES]]

    def show_examples(self) -> None:
        """Put the noted examples into the report, reading each file once."""
        if not self.examples:
            return
        names = np.repeat(list(self.examples), [len(v) for v in self.examples.values()]).tolist()
        chosen = np.concatenate(list(self.examples.values()))
        rows = self.rows(chosen, ("id", "genre", "title", "source", "text")).to_pylist()
        for name, row in zip(names, rows, strict=True):
            self.report.tally.show(name, [{**row, "text": row["text"][:80]}])
        self.examples.clear()

    def _without(self, excluded: set[str], copies: Copies) -> Corpus:
        """This corpus without the clusters that hold an excluded id."""
        listed = sorted(excluded)
        is_listed = np.isin(self.candidates.id.astype(str), listed)
        hit = is_listed[copies.kept].copy()
        np.logical_or.at(hit, copies.dropped_of, is_listed[copies.dropped])
        unknown = len(listed) - len(set(self.candidates.id[is_listed].tolist()))
        if unknown:
            log.warning("%d of %d ids to take down are not in this text", unknown, len(listed))
        self.count("excluded", copies.kept[hit])
        return Corpus(
            paths=self.paths,
            candidates=self.candidates,
            kept=copies.kept[~hit],
            cluster_sizes=copies.sizes[~hit],
            report=self.report,
            examples=self.examples,
            excluded_ids=frozenset(excluded),
            excluded_clusters=frozenset(c.decode() for c in self.candidates.cluster[self.kept[hit]].tolist()),
        )


def _check_malformed(report: MapReport, options: CurateOptions) -> None:
    first = "; ".join(str(m) for m in report.first_malformed[:5])
    if not report.lines:
        raise DataError("the sources hold no documents: expected JSON lines, rows or blocks of text")
    if report.malformed > options.max_malformed_share * report.lines:
        raise DataError(
            f"{report.malformed} of {report.lines} lines are malformed, more than the allowed share "
            f"{options.max_malformed_share:g} (--max-malformed-share); the first: {first}"
        )
    if report.malformed:
        log.warning("skipped %d malformed lines of %d: %s", report.malformed, report.lines, first)


def _check_filters(report: MapReport, options: CurateOptions) -> None:
    for reason, allowed in allowed_shares(options).items():
        check_share(report, reason, allowed)


def check_share(report: MapReport, reason: str, allowed: float) -> None:
    """Raise `DataError` when `reason` took more than its allowed share, with examples of what it took."""
    tally = report.tally
    for genre in (None, *tally.genres(reason)):
        read, dropped = tally.documents("read", genre), tally.documents(reason, genre)
        if dropped <= allowed * read or (genre and read < _FEW_DOCUMENTS):
            continue
        shown = tally.examples[reason][:3]
        examples = "; ".join(f"{e['source']} {e['title']}: {e['text'][:30]!r}" for e in shown)
        of_genre = f" of genre {genre}" if genre else ""
        raise DataError(
            f"filter {reason} drops {dropped} of {read} documents{of_genre}, more than the allowed share "
            f"{allowed:g}; look at them and change the filter's limit or --max-filter-share (for instance "
            f"{examples})"
        )


def _check_genres(corpus: Corpus, options: CurateOptions) -> None:
    have = set(corpus.candidates.genre[corpus.kept].tolist())
    for name in filter(None, map(genre_name, options.genres.split(","))):
        if name not in have:
            raise DataError(
                f"no documents of genre {name} (required by --genres); there are "
                f"{', '.join(sorted(have)) or 'none'}: add a source of it to --sources; "
                f"{_summary(corpus.report)}"
            )


def _summary(report: MapReport) -> str:
    names = [r for r in (*REASONS, *PLAN_REASONS) if r in report.tally.counts]
    dropped = ", ".join(f"{name} {report.tally.documents(name)}" for name in names)
    return f"of {report.lines} read, malformed {report.malformed}, dropped: {dropped or 'none'}"
