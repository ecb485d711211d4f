"""Options of the optimizer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from yanmo.options.fields import Options, opt
from yanmo.train.options.sizes import BUNDLED

Rule = Literal["muon", "adamw"]
"""How a group of parameters is updated."""


@dataclass(frozen=True, kw_only=True)
class OptimizerOptions(Options, group="optimizer"):
    """Optimizer, peak learning rates, weight decay, dropout."""

    optimizer: str = opt(
        "muon",
        "muon is Muon for the layers' matrices and AdamW for the rest; adamw is AdamW for all",
        choices=get_args(Rule),
        auto=BUNDLED,
        form="train_optimizer",
    )
    muon_learning_rate: float = opt(
        0.02,
        "peak learning rate of the matrices that Muon trains",
        form="train_muon_learning_rate",
        auto=BUNDLED,
    )
    adam_learning_rate: float = opt(
        0.01,
        "peak learning rate of the embedding, and of the matrices under --optimizer adamw",
        form="train_adam_learning_rate",
        auto=BUNDLED,
    )
    head_learning_rate: float = opt(0.01, "peak learning rate of the output head, where it is not tied")
    norm_learning_rate: float = opt(0.003, "peak learning rate of the norm weights")
    momentum: float = opt(0.95, "Muon's momentum", below=1)
    adam_beta1: float = opt(0.9, "AdamW's beta1, the decay of the mean gradient", below=1)
    adam_beta2: float = opt(0.95, "AdamW's beta2, the decay of the mean squared gradient", below=1)
    weight_decay: float = opt(0.0, "weight decay of the layers' matrices, multiplied by the learning rate")
    clip: float = opt(1.0, "gradient clipping: largest norm of the whole gradient; 0 does not clip")
    dropout: float = opt(0.0, "share of each layer's output that is dropped while training", below=1)
