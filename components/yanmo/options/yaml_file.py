"""Options as YAML.

Values are taken as they are written and read by the options' own reader, not by YAML: YAML 1.1 makes
eight of `010`, a number of `21:00` and a text of `3e-4`. PyYAML is imported when YAML is read or written, so
that a `config.py` needs only the standard library.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

from yanmo.common.address import Address
from yanmo.common.errors import UsageError, in_words
from yanmo.common.given_file import given_text

_NOTHING = ("", "~", "null", "Null", "NULL")


def read_yaml(path: str | Path) -> dict[str, str]:
    """Return the options in a YAML file: names and texts; names may be written with `-` or `_`.

    Raises:
        UsageError: no such file, not YAML, not a flat mapping, or a name that is given twice.
    """
    import yaml

    shown = str(Address(str(path)))
    try:
        tree = plain_yaml(given_text(path, "a YAML file of options", wrong=UsageError))
    except UsageError:
        raise
    except FileNotFoundError:
        raise UsageError(f"cannot read options from {shown}: no such file; look at its path") from None
    except (ValueError, RecursionError, yaml.YAMLError) as error:
        raise UsageError(f"{shown}: expected lines of `name: value`; {yaml_problem(error)}") from error
    if not isinstance(tree, dict | None):
        raise UsageError(f"{shown}: expected lines of `name: value`, found {_found(tree)}")
    result: dict[str, str] = {}
    for key, value in (tree or {}).items():
        name = key.replace("-", "_")
        if name in result:
            raise UsageError(f"{shown}: option {name!r} is named twice, with - and with _: keep one")
        if not isinstance(value, str):
            raise UsageError(f"{shown}: option {name!r}: expected a single value, found {_found(value)}")
        result[name] = value
    return result


def _found(value: Any) -> str:
    kinds: dict[Any, str] = {dict: "a mapping", list: "a list", str: "a text"}
    return kinds.get(type(value), "nothing")


def yaml_problem(error: Exception) -> str:
    """Return what is wrong with a YAML document, in one line: PyYAML's own words take five."""
    problem, mark = getattr(error, "problem", None), getattr(error, "problem_mark", None)
    if problem and mark:
        return f"line {mark.line + 1}, column {mark.column + 1}: {problem}"
    if isinstance(error, RecursionError):
        return "it is nested too deep"
    return " ".join(in_words(error).split())


def plain_yaml(text: str) -> Any:
    """Return a YAML document as it is written: mappings, lists and texts, also of numbers; None for nothing.

    Raises:
        ValueError: a name is given twice in a mapping, or is not text.
        yaml.YAMLError: it is not YAML, or has aliases.
    """
    import yaml

    tree = yaml.compose(text, Loader=_without_aliases())
    return None if tree is None else _plain(tree)


@functools.cache
def _without_aliases() -> Any:
    """Return a loader that refuses `*name`: nested ones make gigabytes of 480 bytes."""
    import yaml

    class WithoutAliases(yaml.SafeLoader):  # type: ignore[misc]
        def compose_node(self, parent: Any, index: Any) -> Any:
            if self.check_event(yaml.AliasEvent):
                mark = self.peek_event().start_mark
                raise yaml.composer.ComposerError(
                    None, None, "expected the value itself, found an alias", mark
                )
            return super().compose_node(parent, index)

    return WithoutAliases


def _plain(node: Any) -> Any:
    if isinstance(node.value, str):
        return None if node.style is None and node.value in _NOTHING else node.value
    if node.id == "sequence":
        return [_plain(each) for each in node.value]
    found: dict[str, Any] = {}
    for key, value in node.value:
        line = key.start_mark.line + 1
        if not isinstance(key.value, str):
            raise ValueError(f"line {line}: expected a name, found a {key.id}")
        if key.value in found:
            raise ValueError(f"{key.value!r} is named twice, the second time in line {line}")
        found[key.value] = _plain(value)
    return found


def dump_yaml(values: dict[str, str | int | float | bool]) -> str:
    """`values` as the YAML that `read_yaml` reads back."""
    import yaml

    text: str = yaml.safe_dump(values, allow_unicode=True, sort_keys=True)
    return text
