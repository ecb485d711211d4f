"""`yanmo cache plan`: training rows for any settings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from yanmo.common.aligned_table import text_table
from yanmo.common.errors import DataError
from yanmo.formats.packing import id_numbers, plan_epoch, tagged_documents
from yanmo.formats.packing_settings import Packing
from yanmo.formats.token_cache import DocumentIndex, TokenCache
from yanmo.store.objects import ObjectStore
from yanmo.tools.store.find import find, print_json

if TYPE_CHECKING:
    from yanmo.tools.cache.command import PlanOptions


def run(store: ObjectStore, options: PlanOptions) -> int:
    ways = [Packing(context=c, mode=mode) for c in options.context for mode in options.packing]
    cache = TokenCache.open(find(store, options.what, "tokenize", channel=options.channel))
    index = cache.split(options.split)
    if not len(index):
        raise DataError(f"{options.what}: no documents in split {options.split}; choose another --split")
    tagged = tagged_documents(id_numbers(index.ids), options.seed, 0, options.tag_share)
    tagged &= np.array(cache.tag_ids)[index.genre] >= 0
    tagged[list(index.loss_spans)] = False  # as the trainer does: chats show no tag
    figures = [figures_of(index, tagged, how, options.seed) for how in ways]
    if options.json:
        tokens = int(index.length.sum(dtype=np.int64))
        print_json({"documents": len(index), "tokens": tokens, "plans": figures})
        return 0
    _print(index, figures)
    return 0


def figures_of(index: DocumentIndex, tagged: Any, how: Packing, seed: int) -> dict[str, Any]:
    """Return what one way makes of an epoch."""
    plan = plan_epoch(index.length, tagged, how, seed, 0)
    cut = np.bincount(plan.document, minlength=len(index)) > 1
    fits = index.length - 1 + tagged <= how.context
    return {
        "context": how.context,
        "packing": how.mode,
        "rows": len(plan),
        "padding_share": plan.waste,
        "documents_cut": int(cut.sum()),
        "short_documents_cut": int((cut & fits).sum()),
        "tokens": plan.num_tokens,
        "digest": plan.digest,
    }


def _print(index: DocumentIndex, figures: list[dict[str, Any]]) -> None:
    tokens = int(index.length.sum(dtype=np.int64))
    print(f"{len(index):,} documents, {tokens:,} tokens, {tokens / len(index):.1f} per document\n")
    table = [["context", "packing", "rows", "padding", "cut", "of them fit a row"]]
    for one in figures:
        table.append(
            [
                str(one["context"]),
                one["packing"],
                f"{one['rows']:,}",
                f"{100 * one['padding_share']:.2f} %",
                f"{100 * one['documents_cut'] / len(index):.2f} %",
                f"{one['short_documents_cut']:,}",
            ]
        )
    print(*text_table(table), sep="\n")
