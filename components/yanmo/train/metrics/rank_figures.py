"""What one rank counts while it trains, for the supervisor to serve: a file beside the rank's heartbeat.

The training thread only adds to a few numbers (`ended`: less than a microsecond); the rank's watchdog, which
wakes once a second anyway, writes them. So a step waits for no disk and no other rank, and the last figures
of a rank that is killed or stands still stay readable.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

from yanmo.common.plain_json import json_value


@dataclasses.dataclass
class RankFigures:
    """Counted by one rank since its process began."""

    step: int = 0
    """The last step that it has ended; 0 for none."""
    steps: int = 0
    """Steps that it has ended, those made again included."""
    step_seconds: float = 0.0
    """Wall seconds of all of them."""
    data_seconds: float = 0.0
    """Of these, what they waited for their rows."""
    last_seconds: float = 0.0
    """Wall seconds of the last one."""
    memory_bytes: int = 0
    memory_peak_bytes: int = 0
    allocator_retries: int = 0
    checkpoint_seconds: float = 0.0
    """Wall seconds from the beginning of the last checkpoint until it was whole; of rank 0."""
    checkpoint_failures: int = 0

    def ended(self, step: int, seconds: float, data_seconds: float) -> None:
        """Count a step."""
        self.step = step
        self.steps += 1
        self.step_seconds += seconds
        self.data_seconds += data_seconds
        self.last_seconds = seconds

    def write(self, path: Path) -> None:
        """Write them; a reader sees the old file or the new one."""
        temporary = path.with_name(f".{path.name}")
        temporary.write_text(json.dumps(vars(self)), encoding="ascii")
        temporary.replace(path)


def read_figures(path: Path) -> RankFigures | None:
    """Return what a rank wrote last; None where it has written nothing that can be read."""
    try:
        value = json_value(path.read_text(encoding="ascii"))
        return RankFigures(**{name: type(empty)(value[name]) for name, empty in vars(RankFigures()).items()})
    except (OSError, ValueError, KeyError, TypeError):
        return None
