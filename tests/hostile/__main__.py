"""`PYTHONPATH=tests:components:pipelines python -m hostile`: hostile commands, judged by one rule.

Each case has a name, and the name alone does it again: --case 'options/train/layers=most'. The store that the
cases break is made once, by the stages, in --out. Exit code 1 when a case breaks the rule.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from hostile.cases import Case, Tried, attempt
from hostile.engine import ROOT, Engine
from hostile.families import FAMILIES
from hostile.ground import Ground
from hostile.options import named
from hostile.rule import shown
from hostile.s3_ground import FAMILIES as OF_A_BUCKET
from hostile.s3_ground import is_of_a_bucket, open_s3_ground


def main() -> int:
    """Try what the command line asks for; returns the exit code."""
    given = _arguments()
    chosen = list(_chosen(given))
    if given.list:
        print("\n".join(case.name for case in chosen))
        return 0
    bad, counts = 0, dict[str, list[int]]()
    for tried in _tried(chosen, given):
        if tried.findings or given.case:
            print(_story(tried), flush=True)
        count = counts.setdefault(tried.case.family, [0, 0])
        count[0], count[1], bad = count[0] + 1, count[1] + bool(tried.findings), bad + bool(tried.findings)
    for family, (tries, wrong) in counts.items():
        print(f"{family:<12}{tries:>6} cases{wrong:>6} bad")
    return 1 if bad else 0


def _tried(chosen: Iterable[Case], given: argparse.Namespace) -> Iterator[Tried]:
    """Each case that has no result yet, tried and written down."""
    record = given.out / "cases.jsonl"
    done = _done(record) if given.go_on else set()
    engine = Engine(given.code)
    place = open_s3_ground(given.out) if given.store == "s3" else contextlib.nullcontext(Ground(given.out))
    try:
        with place as ground:
            for case in chosen:
                if case.name not in done:
                    tried = attempt(case, ground, engine, forked=not given.fresh)
                    _keep(record, tried)
                    yield tried
    finally:
        engine.close()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m hostile", description=__doc__)
    parser.add_argument("--family", action="append", choices=sorted(FAMILIES), help="these only")
    parser.add_argument(
        "--case", action="append", default=[], metavar="NAME", help="this case, or all below NAME/"
    )
    parser.add_argument(
        "--without", action="append", default=[], metavar="TEXT", help="not those with TEXT in their name"
    )
    parser.add_argument("--store", choices=("file", "s3"), default="file", help="kind of store")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6), metavar="S")
    parser.add_argument(
        "--sample", type=int, default=0, metavar="N", help="so many, drawn by the seed; 0 is all"
    )
    parser.add_argument("--slice", default="0/1", metavar="I/N", help="every Nth case, beginning with I")
    parser.add_argument("--list", action="store_true", help="print the names only")
    parser.add_argument(
        "--fresh", action="store_true", help="start each command by itself instead of forking"
    )
    parser.add_argument("--go-on", action="store_true", help="leave out what --out has a result of")
    parser.add_argument("--code", type=Path, default=ROOT, metavar="DIR", help="checkout whose code is tried")
    parser.add_argument(
        "--out", type=Path, default=Path("runs/hostile"), metavar="DIR", help="ground, results"
    )
    return parser.parse_args()


def _chosen(given: argparse.Namespace) -> Iterator[Case]:
    print(f"seed {given.seed}", file=sys.stderr, flush=True)
    families = (
        given.family
        or sorted({name.partition("/")[0] for name in given.case})
        or list(FAMILIES if given.store == "file" else OF_A_BUCKET)
    )
    ground, whole = Ground(given.out), bool(given.case)
    found = [case for family in families for case in FAMILIES[family](given.seed, ground, whole)]
    if given.case:
        wanted = tuple(given.case)
        found = [c for c in found if c.name in wanted or c.name.startswith(tuple(f"{w}/" for w in wanted))]
        found += [named(w) for w in wanted if "&" in w]
    if given.store == "s3":
        found = list(filter(is_of_a_bucket, found))
    found = [case for case in found if not any(text in case.name for text in given.without)]
    if given.sample:
        found = random.Random(given.seed).sample(found, min(given.sample, len(found)))
    first, _, step = given.slice.partition("/")
    yield from list({case.name: case for case in found}.values())[int(first) :: int(step)]


def _done(record: Path) -> set[str]:
    lines = record.read_text(encoding="utf-8").splitlines() if record.exists() else []
    return {json.loads(line)["name"] for line in lines}


def _keep(record: Path, tried: Tried) -> None:
    ended = vars(tried.ended) | {"stdout": tried.ended.stdout[:300], "stderr": tried.ended.stderr[-3000:]}
    value = {"name": tried.case.name, "findings": tried.findings, **ended}
    with record.open("a", encoding="utf-8") as file:
        file.write(json.dumps(value) + "\n")


def _story(tried: Tried) -> str:
    if not tried.findings:
        return f"ok  {tried.case.name}: {shown(tried.ended)}"
    return "\n    ".join([f"BAD {tried.case.name}", *(" ".join(f.split())[:400] for f in tried.findings)])


if __name__ == "__main__":
    sys.exit(main())
