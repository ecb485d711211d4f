"""`yanmo store diff`: says why two outputs differ."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from yanmo.common.errors import DataError
from yanmo.store.manifest import Reference
from yanmo.store.objects import ObjectStore
from yanmo.store.opening import store_of
from yanmo.store.output import Output, open_reference
from yanmo.tools.store.find import find
from yanmo.tools.store.options import DiffOptions
from yanmo.tools.store.show import described


@dataclass
class Difference:
    """One way in which two outputs differ."""

    kind: str
    """option, input, revision, execution, stage, raw file, chance, or lost."""
    text: str
    inner: list[Difference] = field(default_factory=list)
    """Why the two inputs differ."""


def run(store: ObjectStore, options: DiffOptions) -> int:
    other = store_of(options, options.other_store) if options.other_store else store
    first = find(store, options.a, channel=options.channel, where="A")
    second = find(other, options.b, channel=options.channel, where="B")
    found = differences(first, second, set())
    same = first.content_digest == second.content_digest
    print(f"A  {first.manifest.stage}/{first.manifest.key}  made {first.manifest.created_at}")
    print(f"B  {second.manifest.stage}/{second.manifest.key}  made {second.manifest.created_at}")
    print("the same content" if same else "different content")
    _print(found, 0)
    causes = list(first_causes(found))
    if causes and not same:
        print("\nfirst cause" + "s" * (len(causes) > 1))
        for cause in causes:
            print(f"  {cause.text}")
    return 0


def differences(first: Output, second: Output, seen: set[tuple[str, ...]]) -> list[Difference]:
    """Everything in which the making of two outputs differs; inputs are followed, each pair once."""
    a, b = first.manifest, second.manifest
    if a.stage != b.stage:
        return [Difference("stage", f"stage: {a.stage} / {b.stage}")]
    found = list(_of_values(f"{a.stage}: option", a.options, b.options))
    if a.revision != b.revision:
        found.append(Difference("revision", f"{a.stage}: revision: {a.revision} / {b.revision}"))
    for name in sorted(a.inputs.keys() | b.inputs.keys()):
        found += _of_input(name, first, second, seen)
    execution = list(_of_values(f"{a.stage}: execution option", a.execution, b.execution))
    if not found and a.content_digest != b.content_digest:
        hint = "; see the execution options" if execution else ""
        found.append(
            Difference("chance", f"{a.stage}: equal options, inputs and revision, other bytes{hint}")
        )
    return [*found, *execution]


def _of_values(kind: str, a: dict[str, Any], b: dict[str, Any]) -> Iterator[Difference]:
    for name in sorted(a.keys() | b.keys()):
        left, right = (_shown(values[name]) if name in values else "absent" for values in (a, b))
        if left != right:
            yield Difference(kind.partition(": ")[2], f"{kind} {name}: {left} / {right}")


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 120 else text[:120] + "..."


def _of_input(name: str, first: Output, second: Output, seen: set[tuple[str, ...]]) -> list[Difference]:
    a, b = first.manifest.inputs.get(name), second.manifest.inputs.get(name)
    pair = tuple(str(value["content_digest"]) if value else "" for value in (a, b))
    if pair[0] == pair[1]:
        return []
    text = f"{first.manifest.stage}: input {name}: {described(a)} / {described(b)}"
    if not a or not b:
        return [Difference("input", text)]
    if pair in seen:
        return [Difference("input", f"{text} (as above)", [Difference("repeated", "")])]
    seen.add(pair)
    if "manifest_uri" not in a or "manifest_uri" not in b:
        return [Difference("input", text, list(_of_raw(a, b)))]
    try:
        left = open_reference(first.store, Reference.from_dict(a))
        right = open_reference(second.store, Reference.from_dict(b))
    except DataError as error:
        return [Difference("lost", f"{text}; cannot look further: {error}")]
    return [Difference("input", text, differences(left, right, seen))]


def _of_raw(a: dict[str, Any], b: dict[str, Any]) -> Iterator[Difference]:
    """Return which raw files differ."""
    left, right = (
        {file["name"]: file["sha256"] for file in value.get("files", []) if isinstance(file, dict)}
        for value in (a, b)
    )
    for name in sorted(left.keys() | right.keys()):
        if left.get(name) != right.get(name):
            shown = " / ".join((files.get(name) or "absent")[:12] for files in (left, right))
            yield Difference("raw file", f"raw file {name}: {shown}")


def first_causes(found: list[Difference]) -> Iterator[Difference]:
    """The differences that have none below them."""
    for one in found:
        if one.inner:
            yield from first_causes(one.inner)
        elif one.kind not in ("repeated", "execution option"):
            yield one


def _print(found: list[Difference], depth: int) -> None:
    for one in found:
        if one.text:
            print("  " * (depth + 1) + one.text)
        _print(one.inner, depth + 1)
