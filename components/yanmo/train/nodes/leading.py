"""Around the work of node 0: the other nodes may come while it lasts, and end as it does.

With one node nothing here does anything.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from yanmo.stage.channel_lease import Busy
from yanmo.train.nodes.identity import Identity
from yanmo.train.nodes.leader import Leader
from yanmo.train.nodes.outcome import Outcome
from yanmo.train.supervision.automatic import TrainRun
from yanmo.train.supervision.busy import alone


@contextlib.contextmanager
def with_nodes(run: TrainRun) -> Iterator[None]:
    """Held while the output is made: the port of the rendezvous, and the lease of the channel if asked for.

    Raises:
        Busy: another training of the channel is at work.
        EnvironmentFault: the port is taken.
    """
    leader: Leader | None = run.prepared
    if leader is None:
        with alone(run):
            yield
        return
    with leader.listening(Identity.of(run)):
        try:
            with alone(run):
                yield
        except Busy as reason:
            leader.close(Outcome(0, f"paused: {reason}", is_pause=True))
            raise
        except BaseException as error:
            leader.close(Outcome.of(error))
            raise
        pause = getattr(run, "pause", None)  # unset where nothing paused
        leader.close(Outcome.of_pause(pause) if pause else Outcome(0))
