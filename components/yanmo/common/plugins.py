"""What other packages add to stages: filters and metrics, found by Python's entry points.

    [project.entry-points."yanmo.filters"]      # in the pyproject.toml of a package of somebody's
    lonely = "ink_extras:lonely"

A plugin is used only where an option names it. Its package's name and version are part of the key of what
it makes; its code is not looked at, so new code needs a new version. An error of a plugin is shown as its
own, with the name of its package.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from yanmo.common.errors import DataError, EnvironmentFault, PluginFault, UsageError, is_out_of_space

NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")
"""How a plugin is called: options, metrics and JSON have it."""


@dataclass(frozen=True, order=True)
class Plugin:
    """One entry point of an installed package; it can be sent to another process."""

    group: str
    name: str
    distribution: str
    version: str

    def __str__(self) -> str:
        return f"{self.name} ({self.distribution} {self.version})"

    @property
    def identity(self) -> list[str]:
        """Return its part of an output's key."""
        return [self.group, self.name, self.distribution, self.version]

    def call(self, *args: Any) -> Any:
        """Return the plugin's result for these arguments.

        Raises:
            DataError: the plugin says that the data are wrong; other errors of ours pass, too.
            PluginFault: it failed.
            EnvironmentFault: it cannot be imported.
        """
        function = _loaded(self)
        try:
            return function(*args)
        except DataError as error:
            raise DataError(f"plugin {self}: {error}") from error
        except (EnvironmentFault, MemoryError):
            raise
        except (Exception, SystemExit) as error:
            if is_out_of_space(error) or _is_of_a_signal(error):
                raise
            raise PluginFault(f"plugin {self} failed: {_told(error)}") from error

    def fault(self, what: str) -> PluginFault:
        """Return an error that says what is wrong with what the plugin gave."""
        return PluginFault(f"plugin {self} {what}; tell those who made {self.distribution}")


def find_plugin(group: str, name: str, option: str) -> Plugin:
    """Return the installed plugin of that name.

    Args:
        option: that names it, for messages.

    Raises:
        UsageError: it can be no name, or two packages have one of this name.
        EnvironmentFault: no installed package has it.
    """
    if not NAME.fullmatch(name):
        raise UsageError(f"{option} {name[:60]!r}: expected the name of a plugin, such as lonely_characters")
    named = {(dist.name, dist.version) for dist, _ in _points(group, name)}
    if not named:
        raise EnvironmentFault(f"{option}: no installed package has a plugin {name!r}{_what_there_is(group)}")
    if len(named) > 1:
        both = " and ".join(sorted(f"{dist} {version}" for dist, version in named))
        raise UsageError(f"{option}: {name} is a plugin of {both}: expected one package; uninstall the other")
    ((distribution, version),) = named
    return Plugin(group, name, distribution, version)


def _what_there_is(group: str) -> str:
    names = sorted({point.name for point in entry_points(group=group)})
    there = f"there is {', '.join(names[:20])}" if names else f"none is installed for {group}"
    return f" ({there}); `pip install` the package that has it, here and in the image (docs/how-to/extend.md)"


def _points(group: str, name: str) -> list[tuple[Any, EntryPoint]]:
    return [(point.dist, point) for point in entry_points(group=group, name=name) if point.dist is not None]


@functools.cache
def _loaded(plugin: Plugin) -> Callable[..., Any]:
    points = [point for dist, point in _points(plugin.group, plugin.name) if dist.name == plugin.distribution]
    try:
        found = points[0].load()
    except (Exception, SystemExit) as error:  # IndexError: uninstalled since; else what a module does
        if _is_of_a_signal(error):
            raise
        raise EnvironmentFault(
            f"plugin {plugin} cannot be imported: {_told(error)}; install what {plugin.distribution} needs"
        ) from error
    if not callable(found):
        raise plugin.fault("is no function")
    return found  # type: ignore[no-any-return]


def _is_of_a_signal(error: BaseException) -> bool:
    """Return whether it is SIGTERM's: any other SystemExit would end a stage half done."""
    return isinstance(error, SystemExit) and isinstance(error.code, int) and error.code > 128


def _told(error: BaseException) -> str:
    """Return an error and the line that raised it, as the traceback stays behind in a worker."""
    place = error.__traceback__
    while place is not None and place.tb_next is not None:
        place = place.tb_next
    where = f" in {place.tb_frame.f_code.co_name}, line {place.tb_lineno}" if place else ""
    return f"{type(error).__name__}: {str(error)[:500]}{where}"


def identity_of(plugins: Iterable[tuple[Plugin, object]]) -> list[Any]:
    """Return the part of a key that plugins and their settings are, in no order of theirs."""
    return [[*plugin.identity, setting] for plugin, setting in sorted(plugins, key=lambda each: each[0])]
