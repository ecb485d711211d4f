"""All mapped documents of a run: which copies stay, and checks that no text is lost unnoticed."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from yanmo.common.errors import DataError
from yanmo.common.given_file import json_value
from yanmo.common.words import plural
from yanmo.curate.config import CurateOptions
from yanmo.curate.duplicates import signing
from yanmo.curate.duplicates.clusters import components, keep_best
from yanmo.curate.limits import PLAN_REASONS, check_filters, check_malformed, summary
from yanmo.curate.map_report import EXAMPLES, OF_GENRE, MapReport
from yanmo.curate.mapped_texts import mapped_rows
from yanmo.curate.mapping import DROPPED, NAMES
from yanmo.curate.plan import find_exact_copies, read_documents
from yanmo.curate.sources.listing import Source
from yanmo.engine.maps import paths_for_tasks
from yanmo.engine.sql import Tables, literally, parquet
from yanmo.formats.licenses import UNKNOWN, Allowed
from yanmo.store.output import Output

log = logging.getLogger(__name__)

Ints = npt.NDArray[np.signedinteger[Any]]
REASONS = ("", *PLAN_REASONS)
"""What the column `reason` numbers."""

_CLUSTERED = f"""
create or replace table texts as
select texts.* exclude (home, kept_for, reason), coalesce(joined.home, position) as home,
    coalesce(joined.kept_for, position) as kept_for,
    if(joined.kept_for <> position, {REASONS.index("near_duplicate")}, 0)::tinyint as reason
from texts left join joined using (position)
"""


@dataclass(kw_only=True)
class Corpus:
    """The documents that passed the filters, in the tables `documents` and `texts` of plan.py.

    The view `kept` has the texts that stay, the table `passages` what those share that were dropped for it.
    What is chosen is named by a relation with the columns of `documents`: the end of a query, from its FROM
    on.
    """

    paths: list[Path]
    """The mapped files, for tasks to read."""
    signed: list[Path]
    """Beside each, its columns without text, and the keys of bands."""
    form: str
    """The text form of all documents."""
    tables: Tables
    report: MapReport
    workers: int
    excluded_ids: frozenset[str] = frozenset()
    examples: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    """Reason -> files and rows of what `show_examples` shows for it."""
    dropped: list[Path] = field(default_factory=list)
    """What the filters dropped, as DECISIONS."""

    @classmethod
    def read(
        cls,
        mapped: Sequence[Output],
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
        columns = [path for part in mapped for path in part.paths(signing.NAMES)]
        count = sum(pq.read_metadata(path).num_rows for path in columns)
        if not count:
            raise DataError(
                f"no document passed the filters: {summary(report)}; look whether --sources are the right "
                "files, and at --text-field, --min-han-characters and the other filters (yanmo curate --help "
                "filters)"
            )
        tables = Tables(options.workers, count)
        read_documents(tables, columns, "" if options.split_by == "cluster" else options.split_by, allowed)
        find_exact_copies(tables)
        tables.run("create view kept as select * from texts where reason = 0")
        tables.run("create table passages (position integer, value double, note varchar)")
        corpus = cls(
            paths=[path for part in mapped for path in paths_for_tasks(part, NAMES)],
            signed=columns,
            form=mapped[0].manifest.metadata["text_form"],
            tables=tables,
            report=report,
            workers=options.workers,
            dropped=[path for part in mapped for path in part.paths(DROPPED)],
        )
        corpus.count("duplicate", "documents anti join texts using (rank)")
        return corpus

    def drop_near_duplicates(self, edges: Path) -> None:
        """Join similar documents in clusters and keep the best of them."""
        tables = self.tables
        tables.run(
            f"create or replace table edges as select first, second from {parquet('$path')}",
            path=literally([edges]),
        )
        tables.run("""
            create or replace table near_copies as
            select position, rank, (row_number() over (order by position) - 1)::integer as number from texts
            where position in (select first from edges union all select second from edges)
        """)
        count = tables.value("select count(*) from near_copies")
        pairs = """
            select a.number as first, b.number as second
            from {0} join near_copies as a on first = a.position join near_copies as b on second = b.position
        """
        home = components(count, self._pairs(pairs.format("edges")))
        both = "(from edges union all select second, first from edges)"
        kept_for = keep_best(count, self._pairs(f"{pairs.format(both)} order by a.rank, b.rank"))
        tables.add("loops", number=np.arange(count, dtype=np.int32), home=home, kept_for=kept_for)
        tables.run("""
            create or replace table joined as
            select near_copies.position, home.position as home, kept.position as kept_for
            from loops join near_copies using (number) join near_copies as home on loops.home = home.number
            join near_copies as kept on loops.kept_for = kept.number
        """)
        tables.run(_CLUSTERED)
        tables.run("drop table edges; drop table near_copies; drop table loops; drop table joined")
        self.count("near_duplicate", "texts where kept_for <> position")

    def _pairs(self, query: str) -> Iterator[tuple[Any, Any]]:
        for batch in self.tables.batches(query):
            yield batch["first"].to_numpy(), batch["second"].to_numpy()

    def take_down(self, excluded: Set[str]) -> None:
        """Drop every cluster that holds an excluded id."""
        tables, self.excluded_ids = self.tables, frozenset(excluded)
        tables.add("listed", id=pa.array(sorted(id[:32] for id in excluded), pa.string()))
        tables.run("create or replace table listed as select id::uuid as id from listed")
        tables.run("""
            create or replace table excluded as select distinct home from texts
            where cluster in (select cluster from documents where id in (select id from listed))
        """)
        unknown = tables.value("select count(*) from listed anti join documents using (id)")
        if unknown:
            log.warning("%d of %s of --exclude are not in this text", unknown, plural(len(excluded), "id"))
        self.count("excluded", "kept where home in (select home from excluded)")

    def drop_forbidden(self, allowed: Allowed) -> None:
        """Drop what is under no allowed licence.

        Raises:
            DataError: nothing else is there.
        """
        counts = self.licenses("kept where is_forbidden")
        if not counts:
            return
        shown = ", ".join(f"{name or UNKNOWN} {number}" for name, number in counts.items())
        self.count("license", "kept where is_forbidden")
        if not self.tables.value("select count(*) from kept"):
            raise DataError(
                f"--allow-licenses allows no licence of this text: it is under {shown}, expected "
                f"{allowed.shown}. Change --sources, or the list"
            )
        log.warning("left out, as --allow-licenses allows only %s: %s", allowed.shown, shown)

    def genres_of(self, chosen: str) -> set[str]:
        """Return the genres of some documents."""
        return {genre for (genre,) in self.tables.rows(f"select distinct genre from {chosen}")}

    def number_of(self, chosen: str) -> int:
        """Return the number of some documents."""
        return int(self.tables.value(f"select count(*) from {chosen}"))

    def at(self, positions: Ints, name: str) -> str:
        """Return the relation of the texts at a few positions, until the next call with this name."""
        self.tables.add(name, position=positions)
        return f"texts semi join {name} using (position)"

    def in_order(self, positions: Ints) -> Ints:
        """Return a few positions in the order of clusters."""
        some = self.at(positions, "unordered")
        found = self.tables.table(f"select position from {some} order by home, position")
        return np.asarray(found["position"].to_numpy())

    def rows(self, places: Sequence[tuple[int, int]], columns: Sequence[str]) -> pa.Table:
        """Return the mapped rows at some places, file and row, in that order; there is at least one."""
        file, row = np.array(places, np.int64).T
        return mapped_rows(self.paths, file, row, columns, self.workers)

    def licenses(self, chosen: str) -> dict[str, int]:
        """Return how many of some documents are under each licence."""
        return dict(
            self.tables.rows(f"select license, count(*) from {chosen} group by license order by license")
        )

    def totals(self, chosen: str) -> list[tuple[str, int, int]]:
        """Return genres, and number and characters of some documents of each."""
        query = f"select genre, count(*), sum(characters)::bigint from {chosen} group by genre order by genre"
        return self.tables.rows(query)

    def count(self, name: str, chosen: str) -> None:
        """Count documents under `name`; if that is a reason to drop them, they have it now, with examples."""
        totals = self.totals(chosen)
        for genre, number, size in totals:
            self.report.tally.add(name, genre, number, size)
        if name in REASONS and totals:
            self.examples[name] = self._first_by_id(chosen, EXAMPLES)
            ranks = f"(select rank from {chosen})"
            self.tables.run(f"update texts set reason = {REASONS.index(name)} where rank in {ranks}")

    def _first_by_id(self, chosen: str, number: int) -> list[tuple[int, int]]:
        """Return the places of those with the smallest ids, in their order."""
        query = f"select file, row from (from {chosen}) order by id, file, row limit {number}"
        return [(file, row) for file, row in self.tables.rows(query)]

    def show_examples_of(self, name: str, chosen: str, genres: Iterable[str | None]) -> None:
        """Put examples of some genres into the report, of some documents counted under `name`."""
        for genre in filter(None, genres):
            self.tables.add("one", genre=[genre])
            of_genre = f"(from {chosen}) semi join one using (genre)"
            self.examples[name] = self._first_by_id(of_genre, OF_GENRE)
            self.show_examples()

    def show_examples(self) -> None:
        """Put the kept examples into the report, reading each file once."""
        if not any(self.examples.values()):
            return
        names = [name for name, places in self.examples.items() for _ in places]
        chosen = [place for places in self.examples.values() for place in places]
        columns = ("id", "genre", "title", "source", "path", "line", "text")
        for name, row in zip(names, self.rows(chosen, columns).to_pylist(), strict=True):
            row["path"] = f"{row['path']}:{row.pop('line')}"
            self.report.tally.show(name, [{**row, "text": row["text"][:80]}])
        self.examples.clear()


@dataclass(kw_only=True)
class Handed:
    """What `prepare` hands to the work."""

    sources: list[Source] = field(default_factory=list)
    excluded: frozenset[str] = frozenset()
    """Ids to take down."""
    allowed: Allowed | None = None
    """Licences that the channel allows; None for all."""
    benchmarks: list[Source] = field(default_factory=list)
    corpus: Corpus | None = None
    """Read once, by the first who asks for it."""
    read: list[Output] = field(default_factory=list)
    """What it was read from: the mapped files, which the next night uses again."""
    evaluation_set: Output | None = None
