"""The licences of texts: how their names are compared, and which of them may be learned from."""

from __future__ import annotations

from dataclasses import dataclass

UNKNOWN = "unknown"
"""What a text's licence is called where nobody says which it has; it is allowed by this name only."""
_MOST_NAME = 200


@dataclass(frozen=True)
class Allowed:
    """The licences whose texts may be learned from."""

    names: tuple[str, ...]
    """As somebody wrote them, sorted."""

    def allows(self, license: str) -> bool:
        """Return whether texts under this licence may be learned from; upper and lower case are the same."""
        return folded(license) in self.folded

    @property
    def folded(self) -> frozenset[str]:
        """The names as they are compared, so that two spellings of one list make one key."""
        return frozenset(folded(name) for name in self.names)

    @property
    def shown(self) -> str:
        """The names, with commas."""
        return ", ".join(self.names)

    @classmethod
    def of(cls, text: str) -> Allowed:
        """Return the names in a list with commas, each once, sorted.

        Raises:
            ValueError: there is none, or one is too long.
        """
        found = {folded(name): name.strip() for name in text.split(",") if name.strip()}
        if not found:
            raise ValueError("expected names of licences with commas between, such as MIT,CC-BY-4.0,unknown")
        if any(len(name) > _MOST_NAME for name in found):
            raise ValueError(f"a licence's name has at most {_MOST_NAME} characters")
        return cls(tuple(sorted(found.values(), key=str.casefold)))


def folded(license: str) -> str:
    """Return a licence's name as it is compared: `" mit "` is MIT, nothing is `unknown`."""
    return license.strip().casefold() or UNKNOWN
