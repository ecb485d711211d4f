"""Makes the engine of the chosen backend; only DeepSpeed's imports DeepSpeed."""

from __future__ import annotations

from yanmo.common.errors import UsageError
from yanmo.model.decoder import Decoder
from yanmo.train.backends.engine import Engine
from yanmo.train.backends.plain import PlainEngine
from yanmo.train.config import TrainConfig


def open_engine(decoder: Decoder, options: TrainConfig, device: str) -> Engine:
    """Return the engine that the options ask for; joins the process group.

    Args:
        decoder: holds the first weights on rank 0; the other ranks receive them from rank 0.
        device: cpu, cuda or mps.

    Raises:
        UsageError: DeepSpeed refuses --deepspeed-config.
    """
    if options.backend == "torch":
        return PlainEngine(decoder, options, device)
    from yanmo.train.backends.zero import ZeroEngine  # DeepSpeed is imported only where it is used

    try:
        return ZeroEngine(decoder, options, device)
    except (AssertionError, ValueError, TypeError) as error:
        if isinstance(error, UsageError) or not options.deepspeed_config:
            raise
        raise UsageError(
            f"--deepspeed-config {options.deepspeed_config}: DeepSpeed refuses it: {error}"
        ) from error
