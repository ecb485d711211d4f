"""How much results vary with the seed, measured by `train` and read by `promote`: the part `seed_noise`.

    noise.json    length of the twins as a share of the steps, and of each twin its seed, text (digest of its
                  token cache), start (digest of its starting model) and bits per character of the
                  validation split, mean over genres

Twins are short trainings by one recipe that differ in the seed. Those on the same text from the same start
are compared with each other; text and champion change from night to night, so there may be several such sets,
whose variances are pooled.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from yanmo.common.errors import DataError, wrong_in
from yanmo.common.plain_json import json_value
from yanmo.store.output import Output

PART = "seed_noise"
"""Name of this part of a model, of its stage in the store, and of its pointer."""
SCHEMA = "yanmo.seed_noise/2"
FILE = "noise.json"


@dataclass(frozen=True, kw_only=True)
class Twin:
    """One short training."""

    seed: int
    text: str
    """Content digest of its token cache."""
    bits_per_character: float
    """Bits per character of the validation split, mean over genres."""
    start: str = ""
    """Content digest of the model that it began with; "" for none."""


@dataclass(frozen=True, kw_only=True)
class SeedNoise:
    """The twins of a recipe."""

    share: float
    """Length of a twin, as a share of the steps."""
    twins: tuple[Twin, ...]

    @property
    def spread(self) -> tuple[float, int]:
        """Relative standard deviation over seeds, and its degrees of freedom: see `spread_of`."""
        groups: dict[tuple[str, str], list[float]] = {}
        for twin in self.twins:
            groups.setdefault((twin.text, twin.start), []).append(twin.bits_per_character)
        return spread_of(list(groups.values()))

    def to_json(self) -> str:
        """Return the file."""
        return json.dumps({"schema": SCHEMA, **asdict(self)}, indent=1) + "\n"

    @classmethod
    def of(cls, output: Output) -> SeedNoise:
        """Read the part.

        Raises:
            DataError: it is damaged, or of another version.
        """
        path = output.path(FILE)
        try:
            value = json_value(path.read_text(encoding="utf-8"))
            schema = value["schema"]
            found = cls._parsed(value) if schema == SCHEMA else None
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(
                f"{path}: expected the twins of a recipe ({SCHEMA}), found another file ({wrong_in(error)}); "
                "run `yanmo train` with --twins and --force again"
            ) from error
        if found is None:
            raise DataError(
                f"{output}: expected {SCHEMA}, found {schema!r}, of another version of Yanmo; use that "
                "version here, or run `yanmo train` again"
            )
        return found

    @classmethod
    def _parsed(cls, value: dict[str, Any]) -> SeedNoise:
        """Return the twins in a parsed file.

        Raises:
            KeyError, TypeError, ValueError: it holds no twins, or some that cannot be.
        """
        twins = tuple(Twin(**twin) for twin in value["twins"])
        found = cls(share=float(value["share"]), twins=twins)
        if not all(math.isfinite(t.bits_per_character) and t.bits_per_character > 0 for t in twins):
            raise ValueError("bits per character that are no positive number")
        if not 0 < found.share <= 1:
            raise ValueError(f"a share of the steps of {found.share}")
        if len({(twin.seed, twin.text) for twin in twins}) < len(twins):
            raise ValueError("one seed on one text twice")
        return found


def spread_of(groups: Sequence[Sequence[float]]) -> tuple[float, int]:
    """Pooled standard deviation over seeds, as a share of the mean, and its degrees of freedom.

    Args:
        groups: bits per character of twins; those of one group differ only in their seed.

    Returns:
        (nan, 0) if no group has two twins.
    """
    squares, df = 0.0, 0
    for group in groups:
        values = np.asarray(group, np.float64)
        if len(values) > 1:
            squares += float(((values / values.mean() - 1) ** 2).sum())
            df += len(values) - 1
    return (math.sqrt(squares / df), df) if df else (math.nan, 0)
