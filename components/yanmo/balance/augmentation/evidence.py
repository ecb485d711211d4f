"""Which rules beat plain repetition in the paired experiment of docs/how-to/prepare-text.md.

Five seeds, 64,000 characters read three times (benchmarks/augmentation.py at commit 9109ee6). First weights
and curated text have changed since, so only which one was better is reported, and no numbers. Reading the
same text only once was far better than every rule, so no rule is recommended.
"""

from __future__ import annotations

from yanmo.balance.augmentation.rules import AugmentRules

MEASURED: dict[str, dict[str, bool]] = {
    "synonym": {"诗": True, "词": True, "文": True, "赋": True},
    "reorder": {"诗": False, "文": False, "赋": False},
    "insert": {"文": False, "赋": False},
    "delete": {"文": True, "赋": True},
    "insert-modern": {},
}
"""Rule -> genre that it changes -> whether it was better than the same number of plain epochs: whether the
95 % interval over seeds lay below."""


def advice(rules: AugmentRules, genres: list[str], classical: bool) -> list[str]:
    """For each rule in use a sentence: whether it was better than plain repetition, if it was measured."""
    used = {rule: [g for g in genres if rule in rules.of(g)] for rule in MEASURED}
    return [_about(rule, named, classical) for rule, named in used.items() if named]


def _about(rule: str, genres: list[str], classical: bool) -> str:
    known = {genre: MEASURED[rule][genre] for genre in genres if classical and genre in MEASURED[rule]}
    if not known:
        return (
            f"{rule}: not measured for {', '.join(genres)}; compare with plain repetition before you trust it"
        )
    better = [genre for genre, is_better in known.items() if is_better]
    if not better:
        return f"{rule}: not better than plain repetition in our experiment (docs/how-to/prepare-text.md)"
    return (
        f"{rule}: better than plain repetition in {', '.join(better)} on a small text read three times, but "
        "reading it once was better still: try fewer epochs first (docs/how-to/prepare-text.md)"
    )
