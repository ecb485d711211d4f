"""All mapped documents of a run: which copies stay, and checks that no text is lost unnoticed."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from yanmo.chinese.text_runs import Runs
from yanmo.common.disk_arrays import (
    all_rows,
    group_starts,
    groups_of,
    new_array,
    numbers_where,
    picked,
    rows_of,
    slices,
    sorted_order,
    taken,
    without,
)
from yanmo.common.errors import DataError
from yanmo.common.plain_json import json_value
from yanmo.common.words import plural
from yanmo.curate.config import CurateOptions
from yanmo.curate.duplicates.clusters import components, keep_best
from yanmo.curate.duplicates.near_duplicates import Edges
from yanmo.curate.limits import PLAN_REASONS, check_filters, check_malformed, reasons_in, summary
from yanmo.curate.mapping import DROPPED, MAPPED, MapReport
from yanmo.curate.plan import (
    Candidates,
    Digests,
    ExactCopies,
    find_exact_copies,
    is_among,
    read_candidates,
    read_clusters,
    read_digests,
    read_each,
)
from yanmo.curate.tally import EXAMPLES, OF_GENRE
from yanmo.formats.documents import take_rows
from yanmo.formats.licenses import UNKNOWN, Allowed
from yanmo.formats.row_numbers import by_file
from yanmo.store.output import Output

log = logging.getLogger(__name__)

Ints = npt.NDArray[np.signedinteger[Any]]
Bools = npt.NDArray[np.bool_]
REPORTED = ("overlap_reported", "benchmark_reported")
"""Reasons that are only reported: such a document stays in train."""
REASONS = ("", *PLAN_REASONS, *REPORTED)
"""What `Corpus.reason` may be."""


@dataclass(kw_only=True)
class Corpus:
    """The documents that passed the filters, without copies and excluded ones."""

    paths: list[Path]
    """The mapped files."""
    signed: list[Path]
    form: str
    """The text form of all documents."""
    candidates: Candidates
    copies: ExactCopies
    cluster: Ints
    """For each position its cluster, named by the smallest position in it."""
    kept_for: Ints
    """For each position the position of the document that is kept for it."""
    kept: Ints
    """Positions of the documents that are kept, ordered by cluster."""
    report: MapReport
    excluded_ids: frozenset[str] = frozenset()
    is_excluded: Bools = field(default_factory=lambda: np.zeros(0, np.bool_))
    """For each position, whether its cluster is excluded."""
    examples: dict[str, Ints] = field(default_factory=dict)
    """Reason -> candidates that `show_examples` shows for it."""
    dropped: list[Path] = field(default_factory=list)
    """What the filters dropped, as DECISIONS."""
    reason: npt.NDArray[np.int8] = field(default_factory=lambda: np.zeros(0, np.int8))
    """For each candidate why it is not in train: an index into REASONS."""
    shared: dict[str, Runs] = field(default_factory=dict)
    """Reason -> runs of characters that documents were dropped for."""

    @classmethod
    def read(
        cls,
        mapped: Sequence[Output],
        signed: Sequence[Output],
        options: CurateOptions,
        allowed: Allowed | None = None,
    ) -> Corpus:
        """Return all mapped documents, without exact copies.

        Args:
            allowed: licences that are allowed; of several copies one under such a licence is kept.

        Raises:
            DataError: nothing is left, or too many lines were malformed or filtered.
        """
        report = MapReport()
        for part in mapped:
            report.merge(
                MapReport.from_json(json_value(part.path("report.json").read_text(encoding="utf-8")))
            )
        check_malformed(report, options)
        check_filters(report, options)
        paths = [path for part in mapped for path in part.paths("mapped-*.parquet")]
        columns = [path for part in signed for path in part.paths("signed-*.parquet")]
        group = "" if options.split_by == "cluster" else options.split_by
        forbidden = None if allowed is None else _forbidden(paths, allowed)
        candidates = read_candidates(paths, columns, group, forbidden)
        if not len(candidates):
            raise DataError(
                f"no document passed the filters: {summary(report)}; look whether --sources are the right "
                "files, and at --text-field, --min-han-characters and the other filters (yanmo curate --help "
                "filters)"
            )
        copies = find_exact_copies(read_clusters(paths, len(candidates)), candidates.ranks)
        whole = all_rows(len(copies.unique))
        corpus = cls(
            paths=paths,
            signed=columns,
            form=mapped[0].manifest.metadata["text_form"],
            candidates=candidates,
            copies=copies,
            cluster=whole,
            kept_for=whole,
            kept=whole,
            report=report,
            dropped=[path for part in mapped for path in part.paths(DROPPED)],
            reason=new_array(len(candidates), np.int8),
        )
        corpus.count(
            "duplicate",
            numbers_where(
                lambda some: copies.unique[copies.position[some]] != rows_of(some), len(candidates)
            ),
        )
        return corpus

    def drop_near_duplicates(self, edges: Edges) -> None:
        """Join similar documents in clusters and keep the best of them."""
        count = len(self.copies.unique)
        self.cluster = components(count, edges)
        self.kept_for = keep_best(taken(self.candidates.ranks, self.copies.unique), edges)
        kept = numbers_where(lambda some: self.kept_for[some] == rows_of(some), count)
        order = sorted_order(lambda some: [self.cluster[kept[some]]], len(kept))
        self.kept = taken(kept, order)
        dropped = numbers_where(lambda some: self.kept_for[some] != rows_of(some), count)
        self.count("near_duplicate", taken(self.copies.unique, dropped))

    def take_down(self, excluded: Set[str]) -> None:
        """Drop every cluster that holds an excluded id."""
        listed = np.array([bytes.fromhex(id)[:16] for id in sorted(excluded)], dtype="S16")
        is_listed, found = self._among(listed, "id")
        unknown = len(listed) - len(found)
        if unknown:
            log.warning("%d of %s of --exclude are not in this text", unknown, plural(len(listed), "id"))
        hit = new_array(len(self.cluster), np.bool_)
        hit[self.cluster[self.copies.position[np.flatnonzero(is_listed)]]] = True
        self.is_excluded, self.excluded_ids = taken(hit, self.cluster), frozenset(excluded)
        is_excluded = taken(self.is_excluded, self.kept)
        self.count("excluded", self.copies.unique[self.kept[np.flatnonzero(is_excluded)]])
        self.kept = without(self.kept, is_excluded)

    def drop_forbidden(self, allowed: Allowed) -> None:
        """Drop what is under no allowed licence.

        Raises:
            DataError: nothing else is there.
        """
        assert self.candidates.forbidden is not None
        hit = taken(self.candidates.forbidden, self.chosen)
        if not hit.any():
            return
        dropped = picked(self.chosen, hit)
        self.count("license", dropped)
        counts = self.licenses(dropped)
        shown = ", ".join(f"{name or UNKNOWN} {number}" for name, number in counts.items())
        if hit.all():
            raise DataError(
                f"--allow-licenses allows no licence of this text: it is under {shown}, expected "
                f"{allowed.shown}. Change --sources, or the list"
            )
        log.warning("left out, as --allow-licenses allows only %s: %s", allowed.shown, shown)
        self.kept = without(self.kept, hit)

    @property
    def chosen(self) -> Ints:
        """Indexes into the candidates of the documents that stay, ordered by cluster."""
        return taken(self.copies.unique, self.kept)

    def genres_of(self, positions: Ints) -> set[str]:
        """Return the genres of some documents."""
        documents, _ = self.candidates.totals(taken(self.copies.unique, positions))
        return {name for name, number in zip(self.candidates.genres, documents, strict=True) if number}

    @property
    def cluster_sizes(self) -> Ints:
        """For each position, how many documents it was kept for, itself included; 0 where it was dropped."""
        sizes, position = new_array(len(self.kept_for), np.int32), self.copies.position
        for some in slices(len(position)):
            np.add.at(sizes, self.kept_for[position[some]], 1)
        return sizes

    def digests(self, positions: Ints) -> Digests:
        """Return the digests of what is compared of some texts, read from the mapped files."""
        index = self.copies.unique[positions]
        return read_digests(self.paths, self.candidates.starts, index, "cluster")

    def holding(self, digests: Digests) -> Bools:
        """For each position, whether the digest of what is compared is one of a few."""
        found = new_array(len(self.copies.unique), np.bool_)
        found[self.copies.position[np.flatnonzero(self._among(digests, "cluster")[0])]] = True
        return found

    def _among(self, few: Digests, column: str) -> tuple[Bools, Digests]:
        """Return the candidates that have one of a few ids or digests, and those that one has."""
        is_among_few, found = new_array(len(self.candidates), np.bool_), [few[:0]]
        for start, digests in read_each(self.paths, column) if len(few) else ():
            here = is_among(digests, few)
            is_among_few[start : start + len(here)] = here
            found.append(np.unique(digests[here]))
        return is_among_few, np.unique(np.concatenate(found))

    def groups(self) -> Ints:
        """For each kept document the number of its cluster, author or source, ordered by digest."""
        if self.candidates.group is None:  # clusters are named in the order of digests, and so is `kept`
            clusters, order = taken(self.cluster, self.kept), all_rows(len(self.kept))
            return groups_of(order, group_starts(lambda some: [clusters[some]], order))
        own = self.digests(self.cluster[self.kept])
        group = self.candidates.group[self.chosen]
        return np.unique(np.where(group == b"", own, group), return_inverse=True)[1]

    def reasons(self) -> list[str]:
        """Return the reasons for which documents were dropped, in the order of checking."""
        return reasons_in(self.report)

    def rows(self, chosen: Ints, columns: Sequence[str] | None = None) -> pa.Table:
        """Return the mapped rows of the candidates `chosen`, in that order."""
        if not len(chosen):
            return pq.read_schema(self.paths[0]).empty_table().select(columns or MAPPED.names)
        return take_rows(self.paths, *self.candidates.places(chosen), columns)

    def first_by_id(self, chosen: Ints, number: int) -> Ints:
        """Return the `number` candidates of `chosen` with the smallest ids, in their order."""
        found = chosen[:0]
        for some in slices(len(chosen)):
            both = np.concatenate((found, chosen[some]))
            found = both[np.argsort(self.candidates.ids[both], kind="stable")[:number]]
        return found

    def by_file(self, chosen: Ints) -> Iterator[tuple[Path, npt.NDArray[np.int32]]]:
        """Yield each mapped file that holds some of the candidates `chosen`, and their rows in it, rising."""
        for number, _, rows in by_file(self.candidates.starts, chosen):
            yield self.paths[number], rows

    def licenses(self, chosen: Ints) -> dict[str, int]:
        """Of the candidates `chosen`, how many are under each licence."""
        found: Counter[str] = Counter()
        for path, rows in self.by_file(chosen):
            column = pq.read_table(path, columns=["license"], partitioning=None)["license"]
            for each in pc.value_counts(column.take(pa.array(rows))).to_pylist():
                found[each["values"]] += each["counts"]
        return dict(sorted(found.items()))

    def count(self, name: str, chosen: Ints) -> None:
        """Count the candidates `chosen` under `name`; keep examples if it is a reason to drop them."""
        tally, c = self.report.tally, self.candidates
        for genre, number, size in zip(c.genres, *c.totals(chosen), strict=True):
            if number:
                tally.add(name, genre, number, size)
        if name in REASONS and len(chosen):
            self.reason[chosen] = REASONS.index(name)
            self.examples[name] = self.first_by_id(chosen, EXAMPLES)

    def show_examples_of(self, name: str, chosen: Ints, genres: Iterable[str | None]) -> None:
        """Put examples of some genres into the report, of the candidates `chosen` counted under `name`."""
        for genre in filter(None, genres):
            is_of = self.candidates.genre[chosen] == self.candidates.genres.index(genre)
            self.examples[name] = self.first_by_id(picked(chosen, is_of), OF_GENRE)
            self.show_examples()

    def show_examples(self) -> None:
        """Put the kept examples into the report, reading each file once."""
        if not self.examples:
            return
        names = np.repeat(list(self.examples), [len(v) for v in self.examples.values()]).tolist()
        chosen = np.concatenate(list(self.examples.values()))
        columns = ("id", "genre", "title", "source", "path", "line", "text")
        for name, row in zip(names, self.rows(chosen, columns).to_pylist(), strict=True):
            row["path"] = f"{row['path']}:{row.pop('line')}"
            self.report.tally.show(name, [{**row, "text": row["text"][:80]}])
        self.examples.clear()


def _forbidden(paths: Sequence[Path], allowed: Allowed) -> Bools:
    """For each row of the mapped files, whether its licence is not allowed."""
    found = [np.zeros(0, np.bool_)]
    for path in paths:
        column = pq.read_table(path, columns=["license"], partitioning=None)["license"].cast(pa.string())
        coded = pc.dictionary_encode(pa.concat_arrays(column.chunks)) if column.num_chunks else None
        if coded is not None:
            names = [not allowed.allows(name or "") for name in coded.dictionary.to_pylist()] or [False]
            found.append(np.array(names, np.bool_)[coded.indices.to_numpy()])
    return np.concatenate(found)
