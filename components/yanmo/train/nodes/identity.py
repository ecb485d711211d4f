"""What has to be the same on all nodes: code, options and inputs. They are compared before training begins.

Options of the surroundings (paths, ports, time windows) may differ: those of node 0 count where they decide
for all. Any other difference would train ranks of different models together, or leave them waiting for each
other in different collectives.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from yanmo.common.errors import EnvironmentFault, UsageError
from yanmo.common.made_by import made_by
from yanmo.options.fields import by_kind, flag, spelled
from yanmo.train.supervision.automatic import TrainRun


@dataclass(frozen=True)
class Identity:
    """Of the training, as one node sees it."""

    code: Mapping[str, str]
    """Versions by name."""
    options: Mapping[str, Any]
    """Those in the key, and those of execution."""
    inputs: Mapping[str, str]
    """Content digests by name."""
    key: str

    @classmethod
    def of(cls, run: TrainRun) -> Identity:
        """Of a run whose options are settled and whose key is known."""
        versions = {name: text for name, text in made_by().items() if name != "processor"}
        inputs = {name: one.content_digest if one else "none" for name, one in run.inputs.items()}
        options = by_kind(run.options, "semantic", "execution")
        return cls(versions, json.loads(json.dumps(options)), inputs, run.key)  # as they travel

    @classmethod
    def from_message(cls, value: Mapping[str, Any]) -> Identity:
        """What another node has sent.

        Raises:
            ValueError: it is none.
        """
        try:
            found = cls(dict(value["code"]), dict(value["options"]), dict(value["inputs"]), str(value["key"]))
        except (KeyError, TypeError) as error:
            raise ValueError(f"no identity: {error}") from error
        return found

    def refusal(self, node: int, other: Identity) -> Exception | None:
        """Why node `node`, which is `other`, cannot train with this one, which is node 0; None if it can."""
        wrong = _difference(self.code, other.code)
        if wrong:
            name, here, there = wrong
            return EnvironmentFault(
                f"node {node} runs another version of {name}: {there or 'none'}, and node 0 "
                f"{here or 'none'}; give all nodes the same image or installation"
            )
        wrong = _difference(self.options, other.options)
        if wrong:
            name, here, there = wrong
            return UsageError(
                f"node {node} has {flag(name)} {there}, and node 0 {here}: give all nodes the same command"
            )
        wrong = _difference(self.inputs, other.inputs)
        if wrong or self.key != other.key:
            name, here, there = wrong or ("key", self.key, other.key)
            return UsageError(
                f"node {node} has another {name}: {there[:16]}, and node 0 {here[:16]}; name the "
                "input by its reference instead of latest, or start all nodes again"
            )
        return None


def _difference(here: Mapping[str, Any], there: Mapping[str, Any]) -> tuple[str, str, str] | None:
    """The first name whose values differ, and both."""
    for name in sorted({*here, *there}):
        one, other = here.get(name), there.get(name)
        if one != other:
            return _shown(name), _shown(one), _shown(other)
    return None


def _shown(value: Any) -> str:
    """A value for the log, whoever has sent it: short, and on one line."""
    text = "" if value is None else spelled(value)[:100]
    return "".join(c if c.isprintable() else "?" for c in text)
