"""Options of several stages in one line, as a form of one-line fields and `yanmo run --set` take them.

    train.warmup_steps=20 balance.quotas='ci=200%,fu=200%' curate.default_genre="白话 文"

Blanks separate; a value that holds blanks or quotation marks stands in quotation marks, as in a shell. A
value may hold commas and `=` as it is.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping

from yanmo.common import names
from yanmo.common.errors import UsageError
from yanmo.common.words import did_you_mean
from yanmo.options.values import Values, WrongValue, brief, mistyped

STAGES = ("resolve", *names.STAGES, "launch")
"""Those that a line may be meant for; a test compares them with the pipelines'."""
MOST_CHARACTERS = 4000
"""Of what stands on the form; KFP's server refuses 10,000 bytes of all parameters of a run together."""
_MOST_OF_A_RUN = 40_000
"""Of a file, and of a line with a whole form in it."""


def read_line(text: str, stages: Iterable[str] = ()) -> dict[str, dict[str, str]]:
    """Stage -> option -> its text.

    Args:
        stages: those whose options may be in it; empty for any.

    Raises:
        UsageError: it is not such a line, names something twice, or names another stage.
    """
    if len(text) > _MOST_OF_A_RUN:
        raise UsageError(
            f"options: {len(text)} characters, at most {_MOST_OF_A_RUN}; give train a preset of yours instead"
        )
    try:
        words = shlex.split(text)
    except ValueError as error:
        hint = f"{_EXPECTED}{mistyped(text)}"
        raise UsageError(f"options: {str(error).lower()} in {brief(text)}; {hint}") from None
    known, found = list(dict.fromkeys(stages)), dict[str, dict[str, str]]()
    for word in words:
        name, equals, value = word.partition("=")
        stage, dot, option = name.partition(".")
        if not (equals and dot and stage and option):
            raise UsageError(f"options: {brief(word)}: {_EXPECTED}{mistyped(word)}")
        if known and stage not in known:
            hint = did_you_mean(stage, known)
            raise UsageError(
                f"options: {brief(name)}: no stage {brief(stage)}{hint}; there are {', '.join(known)}"
                f"{mistyped(name)}"
            )
        own, option = found.setdefault(stage, {}), option.replace("-", "_")
        if option in own:
            raise UsageError(f"options: {stage}.{option} is given twice")
        try:
            Values(type=str).refuse_secrets(value)
        except WrongValue as error:
            raise UsageError(f"options: {stage}.{option} {error}") from None
        own[option] = value
    return found


_EXPECTED = (
    "expected STAGE.OPTION=VALUE with blanks between, such as train.warmup_steps=20; a value with blanks in "
    "quotation marks"
)


def as_line(settings: Mapping[str, str]) -> str:
    """Return the line of `{"train.warmup_steps": "20"}`, so that `read_line` reads it back."""
    return " ".join(shlex.quote(f"{name}={value}") for name, value in settings.items())
