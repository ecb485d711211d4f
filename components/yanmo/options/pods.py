"""What the form says of training's pods, as Kubernetes takes it; standard library only.

It is checked here, because nothing later does so in words: of a limit that it cannot parse KFP's driver
(2.17.0) says so in a pod that nobody looks at, and an empty one ends the run.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, ClassVar

_CORES = re.compile(r"(?=.*[1-9])[0-9]{1,5}(\.[0-9]{1,3})?|[1-9][0-9]{0,6}m")
_MEMORY = re.compile(r"(?=.*[1-9])[0-9]{1,7}(\.[0-9]{1,3})?([KMGT]i|[kMGT])")
_KEY = r"([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_VALUE = r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?"
_LABEL = re.compile(rf"(?P<key>{_KEY})=(?P<value>{_VALUE})")
_TAINT = re.compile(
    rf"(?P<key>{_KEY})(=(?P<value>{_VALUE}))?(:(?P<effect>NoSchedule|NoExecute|PreferNoSchedule))?"
)


@dataclass(frozen=True)
class _Text:
    """A text of a kind; raises ValueError where it is none."""

    text: str
    expected: ClassVar[str]
    pattern: ClassVar[re.Pattern[str]]
    several: ClassVar[bool] = False
    """Whether it is a list with commas, which may be empty."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "text", self.text.strip())
        if not all(self.pattern.fullmatch(part) for part in self.parts):
            raise ValueError(self.text)

    @property
    def parts(self) -> list[str]:
        if not self.several:
            return [self.text]
        return [part.strip() for part in self.text.split(",")] if self.text else []

    def __str__(self) -> str:
        return self.text


class Cores(_Text):
    """CPU of a pod."""

    expected = "cores above 0, such as 8, 0.5 or 500m"
    pattern = _CORES


class Memory(_Text):
    """Memory of a pod."""

    expected = "an amount above 0 with its unit, such as 32Gi or 500Mi"
    pattern = _MEMORY


class Gpus(_Text):
    """GPUs of a pod."""

    expected = "a whole number of GPUs, 0 for none"
    pattern = re.compile(r"[0-9]{1,4}")


class NodeLabels(_Text):
    """Labels that a pod's node has."""

    expected = "LABEL=VALUE with commas between, such as pool=gpu,zone=a; or nothing"
    pattern = _LABEL
    several = True

    @property
    def selector(self) -> dict[str, str]:
        """As `nodeSelector` of a pod."""
        found = [_LABEL.fullmatch(part) for part in self.parts]
        return {label["key"]: label["value"] for label in found if label}


class Taints(_Text):
    """Taints that a pod's node may have."""

    expected = (
        "KEY:EFFECT or KEY=VALUE:EFFECT with commas between, such as nvidia.com/gpu:NoSchedule; or nothing"
    )
    pattern = _TAINT
    several = True

    @property
    def tolerations(self) -> list[dict[str, Any]]:
        """As `tolerations` of a pod."""
        return [_toleration(part) for part in self.parts]


def _toleration(text: str) -> dict[str, Any]:
    taint = _TAINT.fullmatch(text)
    assert taint, text
    value, effect = taint["value"], taint["effect"]
    return {
        "key": taint["key"],
        **({"operator": "Exists"} if value is None else {"operator": "Equal", "value": value}),
        **({"effect": effect} if effect else {}),
    }
