"""How a store grows, night by night: a model with measured inputs, checked, and then run for a year.

    python benchmarks/store_nights.py --folder /tmp/nights --nights 14 > nights.jsonl
    python benchmarks/store_growth.py nights.jsonl            # fitted to the first 6 nights, against the rest
    python benchmarks/store_growth.py nights.jsonl --simulate 365 --promoted-every 10 --text-mb 200 --new-mb 2

Measured are the bytes that each stage's output takes in a night, by raw text: a line for each stage, `fixed +
rate * bytes of text`, where the text is all of it or, for what is made file by file, the night's own. Which
outputs a night leaves is taken from what gc keeps (docs/months.md):

- all of the last `keep` nights, by `--keep-nights`, and of nights younger than `--older-than`
- of a champion what its record rests on; of a former one, with `--former-data`, less: its texts and token
  cache are gone, and the ids of its texts are there
- what the newest curate and tokenize were made of, file by file

With --simulate the same lines are taken for larger text. They are a straight line through tiny nights: the
bytes of a larger model, and of its checkpoints, are not in it (--model-mb sets the first).
"""

from __future__ import annotations

import argparse
import json
import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

BY_FILE = ("curate_map", "curate_sign")
"""Made for each raw file, and used again by every later night."""
Night = dict[str, Any]


@dataclass(frozen=True)
class Line:
    """`fixed + rate * x`, by least squares."""

    fixed: float
    rate: float

    @classmethod
    def through(cls, points: Sequence[tuple[float, float]]) -> Line:
        n = len(points)
        mean_x, mean_y = sum(x for x, _ in points) / n, sum(y for _, y in points) / n
        spread = sum((x - mean_x) ** 2 for x, _ in points)
        rate = sum((x - mean_x) * (y - mean_y) for x, y in points) / spread if spread else 0.0
        return cls(mean_y - rate * mean_x, rate)

    def at(self, x: float) -> float:
        return max(self.fixed + self.rate * x, 0.0)


@dataclass(frozen=True)
class Retention:
    """What gc is told."""

    keep: int
    """`--keep-nights`."""
    days: float
    """`--older-than`, in days; nights are a day apart."""
    former: float = math.inf
    """`--former-data`, in days."""


@dataclass
class Model:
    """What a night leaves in a store."""

    stages: dict[str, Line]
    """Bytes of each stage's output of a night."""
    objects: dict[str, float]
    """And its objects."""
    pinned: frozenset[str]
    """Stages whose outputs a champion's record keeps."""
    once: float
    """Bytes of what is made in the first night alone (evaluation set, tokenizer)."""
    let_go: dict[str, Line] = field(default_factory=dict)
    """Bytes of an output of a former champion once its data was let go."""
    beside: dict[str, float] = field(default_factory=dict)
    """Bytes per kept night of records and work, and per night whatever is kept (`sources`)."""

    @classmethod
    def of(cls, nights: Sequence[Night], champions: Sequence[int]) -> Model:
        text = totals(nights)
        first = {"evaluation_set", "tokenizer"}
        stages, objects = {}, {}
        for stage in sorted({s for night in nights for s in night["made"]} - first):
            made = [(n["made"][stage], n["raw_bytes"], total) for n, total in zip(nights, text, strict=True)
                    if stage in n["made"]]  # fmt: skip
            x = 1 if stage in BY_FILE else 2
            stages[stage] = Line.through([(each[x], each[0][0]) for each in made])
            objects[stage] = sum(each[0][1] for each in made) / len(made)
        less: dict[str, list[tuple[float, float]]] = defaultdict(list)
        for night, total in zip(nights, text, strict=True):
            for stage, (left, _) in night.get("let_go", {}).items():
                less[stage].append((total, left))
        rests = [nights[n - 1]["champion_rests_on"] for n in champions if n <= len(nights)]
        last = nights[-1]
        records = [n["before_gc"]["pointers"] for n in nights]
        return cls(
            stages=stages,
            objects=objects,
            pinned=frozenset(s for one in rests for s in one) - first,
            once=sum(nights[0]["made"][s][0] for s in first),
            let_go={stage: Line.through(points) for stage, points in less.items()},
            beside={
                "record": records[1] - records[0],
                "pointers": records[0] - (records[1] - records[0]),
                "work": last["after_gc"]["work"] / max(len(nights), 1),
                "source": last["after_gc"]["sources"] / len(nights),
            },
        )

    def night(self, total: float, new: float, stages: Callable[[str], bool] = lambda stage: True) -> float:
        """Bytes that a night leaves with `total` bytes of raw text, `new` of them its own."""
        chosen = ((s, line) for s, line in self.stages.items() if stages(s))
        return sum(line.at(new if s in BY_FILE else total) for s, line in chosen)

    def champion(self, total: float, night: int, *, is_former: bool) -> float:
        """Bytes that the champion of a night keeps, with `total` bytes of raw text.

        The tokenizer of the first night keeps the texts that it was built from.
        """
        less = {s: line for s, line in self.let_go.items() if night > 1 or s == "tokenize"}
        lines = {**self.stages, **less} if is_former else self.stages
        return sum(lines[stage].at(total) for stage in self.pinned)


def totals(nights: Sequence[Night]) -> list[float]:
    """Bytes of all raw text, by night."""
    found, total = [], 0.0
    for night in nights:
        total += night["raw_bytes"]
        found.append(total)
    return found


def size(
    model: Model, new: Sequence[float], champions: set[int], retention: Retention | None
) -> dict[str, float]:
    """What a store holds after the last of these nights and its gc: bytes by kind, and objects.

    Args:
        new: bytes of raw text that each night brought.
        champions: numbers of the nights, from 1, whose model became champion.
        retention: None where nothing is ever removed.
    """
    now, text, total = len(new), [], 0.0
    for each in new:
        total += each
        text.append(total)
    found = dict.fromkeys(("nights", "champions", "by_file", "records"), 0.0)
    objects = 0.0
    kept = 0
    for night in range(1, now + 1):
        of, own = text[night - 1], new[night - 1]
        found["by_file"] += model.night(of, own, lambda s: s in BY_FILE)
        found["records"] += model.beside["source"]
        objects += sum(n for s, n in model.objects.items() if s in BY_FILE)
        age = now - night
        if retention is None or age < retention.keep or age < retention.days:
            kept += 1
            found["nights"] += model.night(of, own, lambda s: s not in BY_FILE)
            objects += sum(n for s, n in model.objects.items() if s not in BY_FILE)
        elif night in champions:
            followed = min((n for n in champions if n > night), default=now)
            is_former = retention is not None and now - followed >= retention.former and followed < now
            found["champions"] += model.champion(of, night, is_former=is_former)
            objects += sum(n for s, n in model.objects.items() if s in model.pinned)
    found["records"] += model.beside["pointers"] + kept * (model.beside["record"] + model.beside["work"])
    found["records"] += model.once
    found["bytes"] = sum(found.values())
    found["objects"] = objects
    return found


def champions_of(nights: Sequence[Night]) -> set[int]:
    return {night["night"] for night in nights if "champion_rests_on" in night}


def retention_of(night: Night) -> Retention:
    """What gc was told in a measured night."""
    words = dict(word.removeprefix("--").split("=") for word in night["gc"])
    older, former = (words.get(name, "7d").removesuffix("d") for name in ("older-than", "former-data"))
    return Retention(
        int(words.get("keep-nights", 0)), float(older), float(former) if "former-data" in words else math.inf
    )


def check(nights: Sequence[Night], fitted: int) -> list[tuple[int, float, float, float, float]]:
    """Night, then measured and predicted bytes with retention, and without."""
    model, champions = Model.of(nights[:fitted], sorted(champions_of(nights))), champions_of(nights)
    rows = []
    for night in nights:
        new = [each["raw_bytes"] for each in nights[: night["night"]]]
        ours = {n for n in champions if n <= night["night"]}
        kept, all_of_it = (size(model, new, ours, r)["bytes"] for r in (retention_of(night), None))
        held = night["after_gc"]["bytes"]
        rows.append((night["night"], held, kept, held + night["freed_so_far"], all_of_it))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("nights", type=Path)
    parser.add_argument("--fitted", type=int, default=6, help="nights that the model is fitted to")
    parser.add_argument("--simulate", type=int, default=0, help="nights")
    parser.add_argument("--promoted-every", type=int, default=10, help="nights between two champions")
    parser.add_argument("--text-mb", type=float, default=200.0, help="raw text of the first night")
    parser.add_argument("--new-mb", type=float, default=2.0, help="new raw text each night")
    parser.add_argument("--model-mb", type=float, default=0.0, help="bytes of a model; 0: the tiny one's")
    parser.add_argument("--keep-nights", type=int, default=30)
    parser.add_argument("--older-than-days", type=float, default=7.0)
    parser.add_argument(
        "--former-data-days", type=float, default=math.inf, help="default: the data of champions stays"
    )
    options = parser.parse_args()
    nights = [json.loads(line) for line in options.nights.read_text(encoding="utf-8").splitlines()]
    if options.simulate:
        simulate(Model.of(nights, sorted(champions_of(nights))), options)
        return
    print("| night | held, measured | predicted | error | never removed, measured | predicted | error |")
    print("|---|---|---|---|---|---|---|")
    for night, held, kept, grown, everything in check(nights, options.fitted):
        mark = "" if night > options.fitted else " (fitted)"
        print(f"| {night}{mark} | {held:,.0f} | {kept:,.0f} | {kept / held - 1:+.1%} "
              f"| {grown:,.0f} | {everything:,.0f} | {everything / grown - 1:+.1%} |")  # fmt: skip


def simulate(model: Model, options: argparse.Namespace) -> None:
    """A table of nights 1, 30, 90, 180 and the last one."""
    if options.model_mb:
        model.stages["train"] = Line(options.model_mb * 1e6, 0.0)
    retention = Retention(options.keep_nights, options.older_than_days, options.former_data_days)
    print(
        "| after night | never removed | with retention | last nights | champions | files' work | objects |"
    )
    print("|---|---|---|---|---|---|---|")
    for last in sorted({1, 30, 90, 180, options.simulate} & set(range(1, options.simulate + 1))):
        new = [options.text_mb * 1e6, *[options.new_mb * 1e6] * (last - 1)]
        champions = {n for n in range(1, last + 1) if n % options.promoted_every == 1}
        held, grown = size(model, new, champions, retention), size(model, new, champions, None)
        shown = [grown["bytes"], held["bytes"], held["nights"], held["champions"], held["by_file"]]
        print(
            f"| {last} | "
            + " | ".join(f"{each / 1e9:.2f} GB" for each in shown)
            + f" | {held['objects']:,.0f} |"
        )


if __name__ == "__main__":
    main()
