"""What a check of `yanmo doctor` found, what it is worth, and whom a check may ask."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

from yanmo_pipelines.cluster.kfp_api import KfpApi
from yanmo_pipelines.cluster.kubernetes_api import KubernetesApi

State = Literal["ok", "note", "left", "unasked", "away", "bad"]
"""In rising order. ok: as it should be. note: worth knowing, nothing is broken. left: not asked for.
unasked: it may not be asked, so nobody knows. away: who should answer does not, now. bad: to be mended."""
EXIT_CODES: dict[State, int] = {"ok": 0, "note": 0, "left": 0, "unasked": 77, "away": 75, "bad": 78}
"""What doctor ends with, by its worst finding. 77 is sysexits' "no permission"."""
RANK: tuple[State, ...] = ("ok", "note", "left", "unasked", "away", "bad")


@dataclass(frozen=True)
class Finding:
    """One thing that was found."""

    check: str
    state: State
    said: str
    remedy: str = ""
    """What to do, where there is something to do."""

    def as_json(self) -> dict[str, str | int]:
        return {**vars(self), "exit_code": EXIT_CODES[self.state]}


@dataclass(frozen=True)
class Asked:
    """Whom a check asks, and about what."""

    options: Any
    """DoctorOptions."""
    kubernetes_of: Callable[[], KubernetesApi]
    kfp_of: Callable[[], KfpApi]

    @functools.cached_property
    def kubernetes(self) -> KubernetesApi:
        """Raises as `KubernetesApi.of`."""
        return self.kubernetes_of()

    @functools.cached_property
    def kfp(self) -> KfpApi:
        """Raises as `KfpApi.of`."""
        return self.kfp_of()


Check = Callable[[Asked], Iterator[Finding]]
