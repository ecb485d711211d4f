"""What each rule did to held-out bits per character in the paired experiment of docs/augmentation.md.

Five seeds, 64,000 characters read three times (benchmarks/augmentation.py, commit 9109ee6). The same text
read only once gave 1.10 bits less than three plain epochs, more than any rule: so no rule is recommended yet.
"""

from __future__ import annotations

from yanmo.balance.rules import Rules

MEASURED: dict[str, dict[str, tuple[float, float]]] = {
    "synonym": {"诗": (-0.137, 0.040), "词": (-0.116, 0.037), "文": (-0.135, 0.038), "赋": (-0.149, 0.048)},
    "reorder": {"诗": (-0.025, 0.053), "文": (-0.018, 0.059), "赋": (-0.007, 0.065)},
    "insert": {"文": (-0.063, 0.102), "赋": (-0.065, 0.095)},
    "delete": {"文": (-0.122, 0.080), "赋": (-0.175, 0.087)},
    "insert-modern": {},
}
"""Rule -> genre that it changes -> mean difference to the same number of plain epochs, and the half width of
its 95 % interval over seeds; below 0 is better."""
READ_ONCE = -1.10
"""The same difference for a third of the steps, mean over genres."""


def advice(rules: Rules, genres: list[str]) -> list[str]:
    """A sentence for each rule in use: whether it beat plain repetition where it was measured."""
    used = {rule: [g for g in genres if rule in rules.of(g)] for rule in MEASURED}
    return [_about(rule, named) for rule, named in used.items() if named]


def _about(rule: str, genres: list[str]) -> str:
    known = {genre: MEASURED[rule][genre] for genre in genres if genre in MEASURED[rule]}
    if not known:
        return (
            f"{rule}: not measured for {', '.join(genres)}; compare with plain repetition before you trust it"
        )
    better = [genre for genre, (mean, half) in known.items() if mean + half < 0]
    figures = ", ".join(f"{genre} {mean:+.3f} ± {half:.3f}" for genre, (mean, half) in known.items())
    if not better:
        return f"{rule}: not better than plain repetition in our experiment (bits per character: {figures})"
    return (
        f"{rule}: better than plain repetition in {', '.join(better)} on a small text read three times (bits "
        f"per character: {figures}), but reading it once was better still ({READ_ONCE:+.2f}): "
        "try fewer epochs first"
    )
