"""The run form: which options of the stages are its fields. Read without kfp, whose import takes 1 s."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from inspect import Parameter
from typing import Any, get_type_hints

from yanmo.options.fields import AUTO, option_fields, spelled
from yanmo.stage.declaration import Stage

MAX_FORM_FIELDS = 25
"""A choice: KFP's UI shows them in one column, sorted by name and without help."""
OWN_FIELDS = {
    "channel": "whose pointers are read and moved: main, dev, nightly ...",
    "store": "where outputs are kept: s3://bucket/prefix; empty: what the Secret yanmo-store says, else "
    "KFP's own bucket",
    "options": "options off the form, of all stages, in one line: train.warmup_steps=20 balance.by=author; a "
    "value with blanks in quotation marks; or the URI of a file that holds such a line; or the URI and then "
    "a line, which wins",
}
"""Fields of every pipeline that are no stage's option."""


@dataclasses.dataclass(frozen=True)
class FormField:
    """One parameter of a pipeline that sets one option of a stage; several stages may share its name."""

    name: str
    """Its name on the run form, which sorts by name and shows nothing else: `data_sources`."""
    stage: str
    option: str
    type: type
    default: Any
    help: str
    choices: tuple[str, ...] = ()

    def parameter(self, name: str) -> Parameter:
        return Parameter(name, Parameter.POSITIONAL_OR_KEYWORD, annotation=self.type, default=self.default)


def form_fields(stage: Stage) -> list[FormField]:
    """Return the options of `stage` that are fields of the run form."""
    hints = get_type_hints(stage.config)
    return [_field_of(stage, f, hints[f.name]) for f in option_fields(stage.config) if f.metadata["form"]]


def _field_of(stage: Stage, option: dataclasses.Field[Any], kind: type) -> FormField:
    """Return the form's field of an option; one that takes `auto` is a text, whatever it becomes."""
    meta, help = option.metadata, str(option.metadata["help"])
    choices = tuple(meta["choices"] or meta["suggested"])
    default = option.default
    if meta.get("auto"):
        kind, default, help = str, AUTO, f"{help}; auto or empty: {meta['auto']}"
        choices = (AUTO, *(c for c in choices if c != AUTO)) if choices else ()
    elif kind not in (bool, int, float):
        kind, default = str, spelled(default)
    return FormField(meta["form"], stage.name, option.name, kind, default, help, choices)


def fields_of(
    *stages: Stage, defaults: Mapping[str, Any] | None = None, leave_out: Collection[str] = ()
) -> list[FormField]:
    """Return the fields of a form for `stages`.

    Args:
        defaults: name of a field -> its default, where it is not the option's own.
        leave_out: fields that the pipeline has no use for.
    """
    other = defaults or {}
    found = [f for stage in stages for f in form_fields(stage) if f.name not in leave_out]
    return [dataclasses.replace(field, default=other.get(field.name, field.default)) for field in found]
