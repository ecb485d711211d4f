"""Whether a folder's own chat template writes conversations as we do: ChatML, as Qwen.

A model that was tuned with another one would be asked in a form that it does not know, and would answer badly
without a word. The template is run in jinja's sandbox, as
transformers does it, and within limits (render_template.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from yanmo.common.errors import DataError
from yanmo.common.given_file import read_object
from yanmo.formats.chat_tokens import END, START, Turn
from yanmo.tools.generate.render_template import rendered

_BEGIN = "<|bos|>"
_TRIED = (Turn("user", "a"), Turn("assistant", "b"), Turn("user", "c"))


def check_template(folder: Path, has_system: bool) -> None:
    """Refuse a folder whose chat template writes something else.

    Args:
        has_system: whether conversations begin with a system turn; some templates add one of their own.

    Raises:
        DataError: it does, or cannot be run.
    """
    turns = [*([Turn("system", "s")] if has_system else []), *_TRIED]
    found, wanted = written(folder, turns)
    if found != wanted:
        mend = "" if has_system else "; where it adds a system turn of its own, give that by --system"
        raise DataError(
            f"{folder}: its chat template is not ChatML: {found[:200]!r} where {wanted[:200]!r} was expected"
            f"{mend}; leave --chat out to let the model go on from a text"
        )


def written(folder: Path, turns: Sequence[Turn]) -> tuple[str, str]:
    """A conversation as a folder's own chat template writes it, and as we do; the same without a template.

    Raises:
        DataError: the template cannot be run.
    """
    wanted = "".join(f"{START}{turn.role}\n{turn.text}{END}\n" for turn in turns) + f"{START}assistant\n"
    template, config = _template_of(folder)
    if not template:
        return wanted, wanted
    try:
        found = rendered(template, _given(turns, config))
    except ValueError as error:
        raise DataError(f"{folder}: its chat template cannot be run: {error}"[:500]) from error
    return found.removeprefix(_BEGIN), wanted


def _template_of(folder: Path) -> tuple[str, dict[str, Any]]:
    path, alone = folder / "tokenizer_config.json", folder / "chat_template.jinja"
    config = read_object(path) if path.is_file() else {}
    try:
        found = alone.read_text(encoding="utf-8") if alone.is_file() else config.get("chat_template")
    except UnicodeDecodeError as error:
        raise DataError(f"{alone}: expected a text in UTF-8: {error}; copy the model again") from error
    return (found if isinstance(found, str) else ""), config


def _given(turns: Sequence[Turn], config: dict[str, Any]) -> dict[str, Any]:
    names = {name: config[name] for name in ("bos_token", "eos_token") if isinstance(config.get(name), str)}
    messages = [{"role": turn.role, "content": turn.text} for turn in turns]
    return {"messages": messages, "add_generation_prompt": True, **names}
