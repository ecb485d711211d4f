"""The evaluation set, chosen once and then pinned, and what may not be trained on because of it.

Every night uses the test split, so some night will be lucky on it. The confirmation split is scored each
time too, but `promote` reads the result only when everything else speaks for a new champion. It is filled
after test and valid, so that those two are the same with it and without. It has half the size of test:
the spread of a gain is then 1.4 times as large, and the cost half.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from yanmo.common.errors import DataError
from yanmo.common.words import plural, some_of
from yanmo.curate.config import CurateOptions
from yanmo.curate.corpus import Corpus
from yanmo.curate.document_files import write_splits
from yanmo.curate.duplicates.near_duplicates import find_similar
from yanmo.curate.map_report import sort_genres
from yanmo.curate.mapped_texts import Compared
from yanmo.curate.mapping import cluster_digest
from yanmo.curate.plan import owner_digest
from yanmo.curate.split.hold_out import SplitSize, choose
from yanmo.engine.sql import Tables
from yanmo.formats.documents import read_documents
from yanmo.formats.records import CONFIRM
from yanmo.store.commit import Attempt, Result
from yanmo.store.output import Output

log = logging.getLogger(__name__)

Ints = npt.NDArray[np.signedinteger[Any]]

_FEW = 20
"""With fewer test documents, the result of a genre means little."""
_LEAST_GROUPS = 5
"""Of these at most one is held out (hold_out.py)."""
_WITHOUT_CONFIRMATION = (
    "`yanmo promote` then reports first that a promotion is not confirmed, and follows its option "
    "--without-confirmation; another --channel, begun with more text, has the split"
)


def build_evaluation_set(attempt: Attempt, corpus: Corpus, options: CurateOptions) -> Result:
    """Choose test and valid from `corpus`, then confirm if there is enough text for three, and write them.

    Raises:
        DataError: there is not enough text for test and valid.
    """
    wants_three = options.confirm_characters and options.confirm_share
    names = ("test", "valid", CONFIRM) if wants_three else ("test", "valid")
    sizes = [_split_size(options, name) for name in names]
    splits = dict(zip(names, choose(corpus, sizes, options.workers), strict=True))
    if CONFIRM in splits and (lacking := what_lacks(corpus, splits, sizes[-1])):
        del splits[CONFIRM]
        log.warning("no confirmation split: %s. %s", lacking, _WITHOUT_CONFIRMATION)
    for split, held in splits.items():
        if not len(held):
            left = plural(corpus.number_of("kept"), "document")
            raise DataError(
                f"too little text to hold out a {split} split: of {left} that filters and copies leave, "
                f"{_what_would_help(corpus.tables, split, options.split_by)}"
            )
    chosen = {split: corpus.at(held, f"held_{split}") for split, held in splits.items()}
    counts = write_splits(attempt, corpus, chosen, options.shard_characters, options.workers)
    _warn_of_small_genres(corpus, counts["documents"]["test"])
    genres = sort_genres(counts["documents"]["test"])
    licenses = corpus.licenses(corpus.at(np.concatenate(list(splits.values())), "held_out"))
    return Result(counts=counts, metadata={"text_form": corpus.form, "genres": genres, "licenses": licenses})


def _split_size(options: CurateOptions, split: str) -> SplitSize:
    """Size of `split`, per genre."""
    return SplitSize(
        characters=getattr(options, f"{split}_characters"),
        share=getattr(options, f"{split}_share"),
        min_documents=options.min_split_documents,
    )


def what_lacks(corpus: Corpus, splits: Mapping[str, Ints], size: SplitSize) -> str:
    """Return why a text is too small for the three `splits`, in words; "" if it is not.

    Every genre of test must be in it, as what is confirmed is a mean over genres. And if the least number
    of documents would be more than twice the split's share of the whole text, training needs them more: that
    is below about 100 documents per genre by default.
    """
    test, confirm = (corpus.at(splits[name], f"held_{name}") for name in ("test", CONFIRM))
    if missing := corpus.genres_of(test) - corpus.genres_of(confirm):
        return f"{len(missing)} genre(s) of the test split have too few documents for one"
    held, whole = (sum(size for _, _, size in corpus.totals(chosen)) for chosen in (confirm, "kept"))
    if held > 2 * size.share * whole:
        return (
            f"the text is too small for three: {size.min_documents} documents of each genre are "
            f"{held:,} of {whole:,} characters, more than twice --confirm-share {size.share:g}"
        )
    return ""


def _what_would_help(tables: Tables, split: str, split_by: str) -> str:
    """Return why nothing is held out, and what to do: at most a fifth of a genre's groups is."""
    of_genre = "select genre, count(distinct unit) as units from grouped group by genre"
    number, largest = tables.rows(f"select count(*), coalesce(max(units), 0) from ({of_genre})")[0]
    if largest >= _LEAST_GROUPS:
        raising = f"raise --min-split-documents or --{split}-share"
        return f"none is short enough for the split: give more text, or {raising}"
    what, more = f"{plural(largest, 'group')} of similar texts", "give more text"
    if split_by != "cluster":
        what = (
            f"{plural(largest, 'group')}, as --split-by {split_by} keeps all texts of one {split_by} together"
        )
        more = f"give text of more {split_by}s, or leave --split-by out"
    where = "there is" if largest == 1 else "there are"
    if number > 1:
        where = f"the largest of {number:,} genres has"
        more += (
            ", or fewer genres: --genre-field names another field, `;genre=NAME` after a place one for all"
        )
    return f"{where} {what}, and {_LEAST_GROUPS} are needed for one to be held out: {more}"


def _warn_of_small_genres(corpus: Corpus, documents: dict[str, int]) -> None:
    found = {genre: documents.get(genre, 0) for genre in sort_genres(corpus.genres_of("kept"))}
    small = [f"{genre} ({number})" for genre, number in found.items() if number < _FEW]
    if small:
        log.warning(
            "test documents are few in %s: bits per character will be uncertain there", some_of(small)
        )


@dataclass(frozen=True, kw_only=True)
class EvaluationSet:
    """A pinned evaluation set, for keeping training text apart from it."""

    part: Output
    ids: frozenset[str]
    compared: Compared
    """What is compared of its texts."""
    is_confirm: list[bool]
    """Which of its texts are of the confirmation split."""
    clusters: list[str]
    """Digests of what is compared of its documents, in hexadecimal digits."""
    owners: frozenset[str]
    """Digests of its known authors or sources, where the split goes by them."""

    @classmethod
    def open(cls, part: Output, split_by: str) -> EvaluationSet:
        """Read the set.

        Args:
            split_by: `author` or `source` if no document of a held-out one may be trained on.
        """
        columns = ("id", "text", "author", "source", "split", "loss_spans")
        table = pa.concat_tables([read_documents(path, columns) for path in part.paths("*.parquet")])
        form = part.manifest.metadata["text_form"]
        compared = Compared.of(table, form)
        owners = {*map(owner_digest, table[split_by].to_pylist())} if split_by != "cluster" else set()
        return cls(
            part=part,
            ids=frozenset(table["id"].to_pylist()),
            compared=compared,
            is_confirm=[split == CONFIRM for split in table["split"].to_pylist()],
            clusters=[
                cluster_digest(*both).hex()
                for both in zip(compared.texts, table["text"].to_pylist(), strict=True)
            ],
            owners=frozenset(filter(None, owners)),
        )

    def holds(self, corpus: Corpus, similarity: float) -> str:
        """Return the relation of the corpus' texts that the set holds, or their cluster or author.

        Args:
            similarity: similarity from which texts count as copies; 0 finds exact copies only.
        """
        near, tables = np.zeros(0, np.int64), corpus.tables
        if similarity:
            near = find_similar(
                tables, self.texts, corpus.paths, corpus.signed, corpus.form, similarity, corpus.workers
            )
        tables.add("near", position=near)
        for name, digests in (("held_clusters", self.clusters), ("held_owners", sorted(self.owners))):
            tables.add(name, digest=pa.array(digests, pa.string()))
            tables.run(f"create or replace table {name} as select digest::uuid as digest from {name}")
        return """texts where home in (
            select home from texts where cluster in (from held_clusters) or position in (from near)
        ) or owner in (from held_owners)"""

    @property
    def texts(self) -> list[str]:
        """Return what is compared of its texts."""
        return self.compared.texts

    @property
    def has_confirmation(self) -> bool:
        """Return whether it has a confirmation split."""
        return any(self.is_confirm)

    def without_confirmation(self) -> EvaluationSet:
        """Return the texts of test and valid alone; ids, clusters and groups stay those of the whole set."""
        kept = [i for i, is_confirm in enumerate(self.is_confirm) if not is_confirm]
        return replace(self, compared=self.compared.some(kept), is_confirm=[False] * len(kept))
