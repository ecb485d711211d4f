"""The licences whose texts a channel may learn from.

    pointers/<channel>/records/licenses.json

Without it every text is allowed. It is set once, by `yanmo channel licenses --set` or by the first `curate
--allow-licenses`, and holds for every later run of the channel, whatever flags that run forgets.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from yanmo.store.channel.document import change_document, document_name, read_document
from yanmo.store.objects import ObjectStore
from yanmo.store.schema import utc_now

LICENSES_SCHEMA = "yanmo.licenses/1"
LICENSES = "licenses"
UNKNOWN = "unknown"
"""What a text's licence is called where nobody says which it has; it is allowed by this name only."""
_MOST_NAME = 200


@dataclass(frozen=True, kw_only=True)
class Allowed:
    """One state of the list."""

    names: tuple[str, ...]
    """As somebody wrote them, sorted."""
    who: str
    why: str
    when: str

    def allows(self, license: str) -> bool:
        """Whether texts under this licence may be learned from; upper and lower case are the same."""
        return folded(license) in {folded(name) for name in self.names}

    def forbidden(self, counts: Mapping[str, int]) -> dict[str, int]:
        """Licence -> number of texts, of those in `counts` that are not allowed."""
        return {name or UNKNOWN: n for name, n in sorted(counts.items()) if n and not self.allows(name)}

    @property
    def shown(self) -> str:
        """The names, with commas."""
        return ", ".join(self.names)


def folded(license: str) -> str:
    """A licence's name as it is compared: `" mit "` is MIT, nothing is `unknown`."""
    return license.strip().casefold() or UNKNOWN


def names_in(text: str) -> tuple[str, ...]:
    """The names in a list with commas, each once, sorted.

    Raises:
        ValueError: there is none, or one is too long.
    """
    found = {folded(name): name.strip() for name in text.split(",") if name.strip()}
    if not found:
        raise ValueError("expected names of licences with commas between, such as MIT,CC-BY-4.0,unknown")
    if any(len(name) > _MOST_NAME for name in found):
        raise ValueError(f"a licence's name has at most {_MOST_NAME} characters")
    return tuple(sorted(found.values(), key=str.casefold))


def same_names(first: Iterable[str], second: Iterable[str]) -> bool:
    """Whether two lists allow the same."""
    return {folded(name) for name in first} == {folded(name) for name in second}


def read_allowed(store: ObjectStore, channel: str) -> Allowed | None:
    """What the channel allows now; None where it allows everything.

    Raises:
        DataError: the list is damaged, or of another version.
    """
    states = read_states(store, channel)
    return states[-1] if states and states[-1].names else None


def read_states(store: ObjectStore, channel: str) -> tuple[Allowed, ...]:
    """Every state that the list has had, the oldest first; raises as `read_allowed`."""
    found = read_document(store, document_name(channel, LICENSES), LICENSES_SCHEMA, _states)
    return found or ()


def set_allowed(
    store: ObjectStore, channel: str, names: Iterable[str], *, who: str, why: str, only_first: bool = False
) -> Allowed | None:
    """Change the list; returns what the channel allows then.

    Args:
        names: none for every licence.
        only_first: leave a list as it is that the channel has already.
    """

    def change(states: tuple[Allowed, ...] | None) -> dict[str, Any] | None:
        if states and (only_first or same_names(states[-1].names, names)):
            return None
        state = Allowed(names=tuple(names), who=who, why=why, when=utc_now())
        return {"states": [asdict(one) for one in (*(states or ()), state)]}

    change_document(store, document_name(channel, LICENSES), LICENSES_SCHEMA, _states, change)
    return read_allowed(store, channel)


def _states(values: dict[str, Any]) -> tuple[Allowed, ...]:
    found = []
    for one in values["states"]:
        state = Allowed(**{**one, "names": tuple(one["names"])})
        if not all(isinstance(name, str) for name in (*state.names, state.who, state.why, state.when)):
            raise ValueError("a licence's name is no text")
        found.append(state)
    return tuple(found)
