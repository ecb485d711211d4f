"""Filters of installed packages: each measures a text, and a bound says which texts stay."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from yanmo.common.errors import UsageError
from yanmo.common.plugins import Plugin, find_plugin, identity_of
from yanmo.curate.text.filter_sets import MAXIMUM, MINIMUM
from yanmo.options.values import brief, number_in

GROUP = "yanmo.filters"
PREFIX = "plugin:"
"""What stands before a filter's name where reasons are counted."""
_BOUND = re.compile(r"\s*([^<>=\s]+)\s*(<=|>=)\s*(\S+)\s*")


@dataclass(frozen=True)
class PluginFilter:
    """A filter of a package, and its bound."""

    plugin: Plugin
    sign: int
    """MAXIMUM or MINIMUM."""
    limit: float

    @property
    def reason(self) -> str:
        """Return the name under which a document that it drops is counted."""
        return f"{PREFIX}{self.plugin.name}"

    @property
    def shown(self) -> str:
        """The bound and the package."""
        return f"{self.plugin.name}{'<=' if self.sign == MAXIMUM else '>='}{self.limit:g} of {self.plugin}"

    def measured(self, text: str, genre: str) -> float:
        """Return the filter's measure of a text.

        Raises:
            PluginFault: it failed, or gave no number.
        """
        found = self.plugin.call(text, genre)
        if isinstance(found, bool) or not isinstance(found, int | float) or math.isnan(found):
            raise self.plugin.fault(f"gave {found!r:.60} for a text, expected a number")
        return float(found)

    def drops(self, value: float) -> bool:
        """Return whether a text of this value goes."""
        return self.sign * value > self.sign * self.limit


def plugin_filters(text: str) -> tuple[PluginFilter, ...]:
    """Return the filters that `--plugin-filters` names, in its order.

    Raises:
        UsageError: it is malformed, or names one twice.
        EnvironmentFault: no installed package has one.
    """
    found: list[PluginFilter] = []
    for entry in filter(str.strip, text.split(",")):
        bound = _BOUND.fullmatch(entry)
        limit = number_in(bound[3]) if bound else None
        if bound is None or limit is None or not math.isfinite(limit):
            raise UsageError(f"--plugin-filters {brief(entry)}: expected NAME<=NUMBER or NAME>=NUMBER")
        plugin = find_plugin(GROUP, bound[1], "--plugin-filters")
        if any(each.plugin == plugin for each in found):
            raise UsageError(f"--plugin-filters: {plugin.name} is there twice; leave one out")
        found.append(PluginFilter(plugin, MAXIMUM if bound[2] == "<=" else MINIMUM, float(limit)))
    return tuple(found)


def key_of(filters: Sequence[PluginFilter]) -> tuple[list[object], str]:
    """Return the part of an output's key that filters are, and how a person reads that."""
    identity = identity_of((each.plugin, [each.sign, each.limit]) for each in filters)
    return identity, ", ".join(each.shown for each in filters)
