"""What each rule did to held-out bits per character in the paired experiment of docs/augmentation.md."""

from __future__ import annotations

from yanmo.balance.rules import Rules

MEASURED: dict[str, dict[str, tuple[float, float]]] = {}
"""Rule -> genre -> mean difference to the same number of plain epochs, and the half width of its 95 %
interval over seeds; below 0 is better."""


def advice(rules: Rules, genres: list[str]) -> list[str]:
    """A sentence for each rule in use: whether it beat plain repetition where it was measured."""
    used = {rule: [g for g in genres if rule in rules.of(g)] for rule in MEASURED}
    return [_about(rule, named) for rule, named in used.items() if named]


def _about(rule: str, genres: list[str]) -> str:
    known = {genre: MEASURED[rule][genre] for genre in genres if genre in MEASURED[rule]}
    better = [genre for genre, (mean, half) in known.items() if mean + half < 0]
    figures = ", ".join(f"{genre} {mean:+.3f} ± {half:.3f}" for genre, (mean, half) in known.items())
    verdict = (
        f"better than plain repetition in {', '.join(better)}"
        if better
        else "not better than plain repetition"
    )
    if not known:
        return (
            f"{rule}: not measured for {', '.join(genres)}; compare with plain repetition before you trust it"
        )
    return f"{rule}: {verdict} in our small experiment (bits per character against plain epochs: {figures})"
