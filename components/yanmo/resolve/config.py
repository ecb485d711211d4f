"""Options of the resolve task."""

from __future__ import annotations

from dataclasses import dataclass

from yanmo.options.fields import StageOptions, opt
from yanmo.stage.declaration import Stage


@dataclass(frozen=True, kw_only=True)
class ResolveOptions(StageOptions, group="resolve"):
    """Check a run's form, and pin what the channel's pointers name: no later task depends on the time."""

    start_from: str = opt(
        "none",
        "model that the training starts from: none is a new one, champion the channel's (a new one while it "
        "has none), or train/KEY",
        kind="environment",
        form="model_start",
    )
    use_tokenizer: str = opt(
        "auto",
        "tokenizer of the run: auto is that of the model it starts from, else a new one; or champion, "
        "tokenizer/KEY, none",
        kind="environment",
        form="model_tokenizer",
    )
    stages: tuple[str, ...] = opt((), "stages of the run whose options are checked", kind="environment")
    form: tuple[str, ...] = opt(
        (), "a field of the run form: STAGE.OPTION=VALUE; may be given many times", kind="environment"
    )
    others: str = opt(
        "",
        "options off the form, of all stages, in one line: train.warmup_steps=20 balance.by=author; or a "
        "file or URI that holds it",
        kind="environment",
    )


STAGE = Stage(
    name="resolve",
    image="data",
    revision=1,
    config=ResolveOptions,
    outputs={"champion": "Model", "evaluation_set": "Dataset", "start_model": "Model", "tokenizer": "Model"},
    parameters=("options",),
)
