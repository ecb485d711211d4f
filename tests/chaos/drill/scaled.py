"""The rules of manifests/ with all their times divided by one factor, so that a drill takes minutes."""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping
from typing import Any

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_IN_BRACKETS = re.compile(r"\[[^]]*\]")
_DURATION = re.compile(r"(\d+)([smhd])\b")
_AGE_ABOVE = re.compile(r"((?:_seconds|_seconds:max)\)? > )(\d+)\b(?! \*)")
_DAY_OR_HOUR = re.compile(r"\b(?:86400|3600)\b")


def scaled(rules: Mapping[str, Any], factor: float) -> dict[str, Any]:
    """The rules as they would be if all of time passed `factor` times as fast.

    Ranges, `for:` and limits of ages in seconds are times; shares, counts and degrees are none.
    """
    found = copy.deepcopy(dict(rules))
    for group in found["groups"]:
        for rule in group["rules"]:
            rule["expr"] = scaled_expression(rule["expr"], factor)
            if "for" in rule:
                rule["for"] = _durations(rule["for"], factor)
    return found


def scaled_expression(expression: str, factor: float) -> str:
    """One expression, as `scaled` says."""
    expression = _IN_BRACKETS.sub(lambda part: _durations(part[0], factor), expression)
    expression = _AGE_ABOVE.sub(lambda part: f"{part[1]}{float(part[2]) / factor:g}", expression)
    return _DAY_OR_HOUR.sub(lambda seconds: f"{int(seconds[0]) / factor:g}", expression)


def _durations(text: str, factor: float) -> str:
    return _DURATION.sub(lambda d: f"{round(int(d[1]) * _UNITS[d[2]] * 1000 / factor)}ms", text)
