"""The sink of a name; its library is imported with it."""

from __future__ import annotations

from yanmo.train.sinks.sink import Sink


def open_sink(name: str, target: str) -> Sink:
    """The sink of that name (options/sink_names.py).

    Raises:
        ImportError: its library is not installed.
    """
    if name == "tensorboard":
        from yanmo.train.sinks.tensorboard_files import TensorBoard

        return TensorBoard(target)
    if name == "mlflow":
        from yanmo.train.sinks.mlflow_server import MLflow

        return MLflow(target)
    from yanmo.train.sinks.wandb_run import WeightsAndBiases

    return WeightsAndBiases(target)
