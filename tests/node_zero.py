"""How another node speaks to node 0 over a real socket, without a training."""

from __future__ import annotations

import dataclasses
import socket
import time
from contextlib import contextmanager

from several_nodes import a_port

from yanmo.train.config import TrainConfig
from yanmo.train.nodes.identity import Identity
from yanmo.train.nodes.reception import PROTOCOL
from yanmo.train.nodes.wire import Wire

IDENTITY = Identity(
    {"yanmo": "1", "torch": "2"},
    {"threads": 1, "learning_rate": 0.1, "nnodes": 3},
    {"token_cache": "a" * 64},
    "k" * 64,
)


def options(**changes) -> TrainConfig:
    values = {"nnodes": 3, "ranks": 1, "batch_rows": 12, "rendezvous": f"127.0.0.1:{a_port()}"}
    return TrainConfig(**{**values, "rendezvous_seconds": 1.0, "device": "cpu", **changes})


@contextmanager
def node(of: TrainConfig, number: int, identity: Identity = IDENTITY):
    """Another node that says hello."""
    wire = Wire(socket.create_connection(of.meeting_point()))
    try:
        wire.send("hello", protocol=PROTOCOL, node=number, identity=dataclasses.asdict(identity))
        yield wire
    finally:
        wire.close()


def answer(wire: Wire) -> dict:
    end = time.monotonic() + 20
    while time.monotonic() < end:
        if message := wire.take():
            return message
        time.sleep(0.01)
    raise AssertionError("no answer")
