"""Options as YAML: a file, or a short text given in its place.

PyYAML is imported when YAML is read or written, so that a `config.py` needs only the standard library.
"""

from __future__ import annotations

import re
from pathlib import Path

from yanmo.common.errors import UsageError

_INLINE = re.compile(r"\s*\{|\s*[A-Za-z_]\w*\s*:(\s|$)")
_MAX_INLINE = 1000


def _is_inline(source: str | Path) -> bool:
    return isinstance(source, str) and _INLINE.match(source) is not None


def shown_source(source: str | Path) -> str:
    """How messages name an options file, or the text of one."""
    text = str(source)
    return f"--config {text[:40]!r}{'...' * (len(text) > 40)}" if _is_inline(source) else text


def read_yaml(source: str | Path) -> dict[str, str | int | float | bool]:
    """The options in a YAML file, or in at most 1,000 characters of YAML itself: names and scalars.

    Raises:
        UsageError: no such file, not YAML, or not a flat mapping.
    """
    import yaml

    path = shown_source(source)
    try:
        if _is_inline(source):
            text = str(source)
            if len(text) > _MAX_INLINE:
                raise UsageError(f"{path}: {len(text)} characters; put more than {_MAX_INLINE} in a file")
        else:
            text = Path(source).read_text(encoding="utf-8-sig")
        values = yaml.safe_load(text) or {}
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise UsageError(f"cannot read options from {path}: {error}") from error
    if not isinstance(values, dict):
        raise UsageError(f"{path}: expected lines of `name: value`, found {type(values).__name__}")
    for name, value in values.items():
        if not isinstance(name, str) or not isinstance(value, (str, int, float, bool)):
            raise UsageError(f"{path}: option {name!r}: expected a single value, got {value!r}")
    return values


def dump_yaml(values: dict[str, str | int | float | bool]) -> str:
    """`values` as the YAML that `read_yaml` reads back."""
    import yaml

    text: str = yaml.safe_dump(values, allow_unicode=True, sort_keys=True)
    return text
