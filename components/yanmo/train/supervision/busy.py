"""Two nights of a channel never train at once: `--when-busy`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from yanmo.stage.channel_lease import Busy, alone_in
from yanmo.train.nodes.leader import tell_busy
from yanmo.train.supervision.automatic import TrainRun


@contextmanager
def alone(run: TrainRun) -> Iterator[None]:
    """Hold the lease of the channel, where the options ask for it.

    Raises:
        Busy: another training of the channel is at work.
    """
    options = run.options
    if options.when_busy == "train":
        yield
        return
    waits = options.when_busy == "wait"
    try:
        with alone_in(run.store, run.stage.name, options.channel, options.run_id, waits=waits):
            yield
    except Busy as reason:
        if options.nnodes > 1:
            tell_busy(run, str(reason))
        raise
