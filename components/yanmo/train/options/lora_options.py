"""Options of LoRA: what is trained of a model that is given."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from yanmo.options.fields import Options, Scalar, flag, opt

EVERY = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
"""The matrices of a layer."""
_ALL = "all"
_RATE = 0.0002


def left_to_lora(values: Mapping[str, Any]) -> dict[str, Scalar]:
    """Return what follows from LoRA where nobody gives it: Muon and its rates are for whole matrices."""
    return {"optimizer": "adamw", "adam_learning_rate": _RATE} if values["lora_rank"] else {}


@dataclass(frozen=True, kw_only=True)
class LoraOptions(Options, group="lora"):
    """Training a few numbers beside a frozen model (docs/how-to/pretrained.md)"""

    lora_rank: int = opt(
        0,
        "rank of the matrices that are trained beside the frozen ones of --model; 0 trains all weights; "
        f"above 0 the defaults are --optimizer adamw and --adam-learning-rate {_RATE}",
        most=4096,
        often=True,
        later=True,
    )
    lora_alpha: float = opt(32.0, "what they add is multiplied by this / --lora-rank", above=0, later=True)
    lora_dropout: float = opt(
        0.0, "share of their inputs that is dropped while training", below=1, later=True
    )
    lora_targets: str = opt(
        _ALL,
        f"the layers' matrices that they are put beside, separated by commas: {', '.join(EVERY)}, or all",
        later=True,
        metavar="A,B",
    )

    @property
    def lora_names(self) -> tuple[str, ...]:
        """The matrices that `lora_targets` names, in the order of EVERY."""
        named = {name.strip() for name in self.lora_targets.split(",")}
        return tuple(name for name in EVERY if name in named or _ALL in named)

    def contradictions(self) -> list[str]:
        """Return what cannot be together."""
        unknown = {name.strip() for name in self.lora_targets.split(",")} - {_ALL, *EVERY}
        if unknown:
            known = ", ".join((*EVERY, _ALL))
            return [
                f"--lora-targets: expected names of {known}; found {', '.join(map(repr, sorted(unknown)))}"
            ]
        given = [name for name in ("lora_alpha", "lora_dropout", "lora_targets") if self.is_changed(name)]
        if given and not self.lora_rank:
            return [f"{flag(given[0])} has no effect without LoRA: give --lora-rank"]
        return []
