"""Kubernetes' quantities (`500m`, `2Gi`) as numbers, and numbers as a person reads them."""

from __future__ import annotations

import re
from decimal import Decimal

_UNITS = {
    **{"n": Decimal("1e-9"), "u": Decimal("1e-6"), "m": Decimal("1e-3"), "": Decimal(1)},
    **{unit: Decimal(1000) ** (n + 1) for n, unit in enumerate("kMGTPE")},
    **{f"{unit}i": Decimal(1024) ** (n + 1) for n, unit in enumerate("KMGTPE")},
}
_QUANTITY = re.compile(r"([+-]?\d+(?:\.\d*)?|\.\d+)([eE][+-]?\d+|[numkMGTPE]i?|Ki)?\Z")


def quantity(text: str) -> Decimal:
    """The number that a quantity says: 0.5 of `500m`.

    Raises:
        ValueError: it is none.
    """
    found = _QUANTITY.match(text.strip())
    unit = (found[2] or "") if found else ""
    if found and unit in _UNITS:
        return Decimal(found[1]) * _UNITS[unit]
    if found and unit[:1] in "eE":
        return Decimal(found[1] + unit)
    raise ValueError(f"{text!r} is no quantity of Kubernetes; expected such as 500m, 2 or 3Gi")


def shown(resource: str, amount: Decimal) -> str:
    """As a person reads it: `2 CPU`, `3 GiB of memory`, `1 nvidia.com/gpu`."""
    if resource == "cpu":
        return f"{amount.normalize():f} CPU"
    if resource in ("memory", "ephemeral-storage"):
        gib = (amount / Decimal(1024) ** 3).quantize(Decimal("0.01")).normalize()
        return f"{gib:f} GiB of {'memory' if resource == 'memory' else 'disk'}"
    return f"{amount.normalize():f} {resource}"
