"""Compute the training rows for any settings: rows, padding, documents cut, tokens read twice.

WHAT is tokenize/<key>, channel/pointer (dev/tokenize) or a reference file. Lists are separated by commas.
Every packing is combined with every context, and with every stride if it has windows. Nothing is written or
tokenized again; give the settings that you choose to `yanmo train`.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from yanmo.common.aligned_table import text_table
from yanmo.common.errors import DataError, UsageError
from yanmo.formats.packing import PackingPlan, id_numbers, plan_epoch, tagged_documents
from yanmo.formats.packing_settings import LONGEST_CONTEXT, MODES, OVERLAP_LOSS, Packing
from yanmo.formats.token_cache import SPLITS, DocumentIndex, TokenCache
from yanmo.options.values import MOST_EXACT, argument, arguments
from yanmo.store.objects import ObjectStore
from yanmo.tools.cache.open_cache import find_cache
from yanmo.tools.store.find import print_json

HELP = "compute rows, padding, cut documents and repeated tokens for any packing settings"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("what", metavar="WHAT", help="tokenize/key, channel/pointer or a reference file")
    contexts = arguments(int, least=2, most=LONGEST_CONTEXT)
    parser.add_argument(
        "--context",
        type=contexts,
        default="512,1024,2048",
        metavar="N,...",
        help="context lengths, tokens (default: %(default)s)",
    )
    parser.add_argument(
        "--stride",
        type=arguments(int),
        default="0",
        metavar="N,...",
        help="tokens from one window to the next; 0 is the context length (default: %(default)s)",
    )
    parser.add_argument(
        "--packing",
        default=",".join(MODES),
        metavar="NAME,...",
        help="ways of packing (default: %(default)s)",
    )
    parser.add_argument(
        "--split-longer-than",
        type=argument(int),
        default=0,
        metavar="N",
        help="as for `yanmo train`, tokens (default: %(default)s)",
    )
    parser.add_argument(
        "--min-piece",
        type=argument(int, least=1),
        default=1,
        metavar="N",
        help="as for `yanmo train`, tokens; the default is %(default)s",
    )
    parser.add_argument(
        "--overlap-loss",
        default="once",
        choices=OVERLAP_LOSS,
        help="as for `yanmo train` (default: %(default)s)",
    )
    parser.add_argument(
        "--tag-share",
        type=argument(float, most=1),
        default=0.5,
        metavar="X",
        help="as for `yanmo train` (default: %(default)s)",
    )
    parser.add_argument(
        "--split",
        default="train",
        choices=SPLITS,
        help="split whose documents are used (default: %(default)s)",
    )
    parser.add_argument(
        "--seed",
        type=argument(int, most=MOST_EXACT),
        default=0,
        metavar="N",
        help="seed of the order of the data (default: %(default)s)",
    )
    parser.add_argument("--json", action="store_true", help="for scripts: one JSON document")


def run(store: ObjectStore, args: argparse.Namespace) -> int:
    ways = list(_ways(args))
    cache = TokenCache.open(find_cache(store, args.what))
    index = cache.split(args.split)
    if not len(index):
        raise DataError(f"{args.what}: no documents in split {args.split}")
    tagged = tagged_documents(id_numbers(index.ids), args.seed, 0, args.tag_share)
    tagged &= np.array(cache.tag_ids)[index.genre] >= 0
    tagged[list(index.loss_spans)] = False  # as the trainer does: chats show no tag
    plan_epoch(index.length[:2], tagged[:2], ways[0], args.seed, 0)  # loads numba, which is no plan's time
    figures = [figures_of(index, tagged, how, args.seed) for how in ways]
    if args.json:
        tokens = int(index.length.sum(dtype=np.int64))
        print_json({"documents": len(index), "tokens": tokens, "plans": figures})
        return 0
    _print(index, figures)
    return 0


def _ways(args: argparse.Namespace) -> Iterator[Packing]:
    """Every combination that makes sense; an option is left out where it has no meaning.

    Raises:
        UsageError: a value that no packing takes.
    """
    names = [name.strip() for name in args.packing.split(",") if name.strip()]
    unknown = [name for name in names if name not in MODES]
    if unknown or not names:
        raise UsageError(f"--packing {args.packing!r}: expected some of {', '.join(MODES)}")
    for context in args.context:
        for mode in names:
            for stride in args.stride:
                if stride and mode == "concat":
                    continue
                overlaps = 0 < stride < context
                yield Packing(
                    context=context,
                    mode=mode,
                    stride=stride,
                    overlap_loss=args.overlap_loss if overlaps else "once",
                    split_longer_than=args.split_longer_than if mode == "best-fit" and not overlaps else 0,
                    min_piece=1 if overlaps else args.min_piece,
                )


def figures_of(index: DocumentIndex, tagged: Any, how: Packing, seed: int) -> dict[str, Any]:
    """What one way makes of an epoch."""
    began = time.process_time()
    plan = plan_epoch(index.length, tagged, how, seed, 0)
    seconds = time.process_time() - began
    cut = np.bincount(plan.document, minlength=len(index)) > 1
    fits = index.length - 1 + tagged <= how.context
    positions = len(plan) * how.context
    return {
        "context": how.context,
        "packing": how.mode,
        "stride": how.step,
        "rows": len(plan),
        "padding_share": plan.waste,
        "documents_cut": int(cut.sum()),
        "short_documents_cut": int((cut & fits).sum()),
        "repeated_tokens": plan.num_repeated,
        "repeated_share": plan.num_repeated / max(positions, 1),
        "tokens": plan.num_tokens,
        "shortest_piece": _shortest_piece(plan, cut),
        "digest": plan.digest,
        "cpu_seconds": seconds,
    }


def _shortest_piece(plan: PackingPlan, cut: Any) -> int:
    """Tokens that the shortest piece of a cut document predicts; 0 where none is cut."""
    lengths = plan.length[cut[plan.document]]
    return int(lengths.min()) if len(lengths) else 0


def _print(index: DocumentIndex, figures: list[dict[str, Any]]) -> None:
    tokens = int(index.length.sum(dtype=np.int64))
    print(f"{len(index):,} documents, {tokens:,} tokens, {tokens / len(index):.1f} per document\n")
    head = ["context", "packing", "stride", "rows", "padding", "cut", "of them fit a row"]
    table = [[*head, "read twice", "shortest piece", "ms of CPU"]]
    for one in figures:
        table.append(
            [
                str(one["context"]),
                one["packing"],
                str(one["stride"]) if one["packing"] != "concat" else "-",
                f"{one['rows']:,}",
                f"{100 * one['padding_share']:.2f} %",
                f"{100 * one['documents_cut'] / len(index):.2f} %",
                f"{one['short_documents_cut']:,}",
                f"{100 * one['repeated_share']:.2f} %",
                str(one["shortest_piece"]),
                f"{1000 * one['cpu_seconds']:.0f}",
            ]
        )
    print(*text_table(table), sep="\n")
