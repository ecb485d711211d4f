"""`yanmo store show`: shows one output."""

from __future__ import annotations

import json
from typing import Any

from yanmo.common.aligned_table import text_table
from yanmo.common.logs import human_bytes
from yanmo.common.words import plural
from yanmo.store.manifest import Manifest
from yanmo.store.objects import ObjectStore
from yanmo.store.output import Output
from yanmo.tools.store.find import find, print_json
from yanmo.tools.store.options import ShowOptions
from yanmo.tools.store.pointed import read_all

_MOST_FILES = 40


def run(store: ObjectStore, options: ShowOptions) -> int:
    output = find(store, options.what, channel=options.channel)
    if options.json:
        manifest = json.loads(output.manifest.to_json())
        print_json({"reference": vars(output.reference), "manifest": manifest})
        return 0
    _print_head(store, output)
    manifest = output.manifest
    _print_inputs(manifest)
    for title in ("counts", "options", "execution", "metadata"):
        _print_values(title, getattr(manifest, title))
    _print_files(output)
    return 0


def _print_head(store: ObjectStore, output: Output) -> None:
    manifest = output.manifest
    named = read_all(store, store.list("pointers"))
    key = manifest.stage, manifest.key
    pointers = [n.by for n in named if (n.reference.stage, n.reference.key) == key]
    size = sum(entry.bytes for entry in manifest.files)
    rows = {
        "output": f"{manifest.stage}/{manifest.key}",
        "content": manifest.content_digest,
        "made": f"{manifest.created_at}, revision {manifest.revision}, attempt {manifest.attempt}",
        "run": manifest.run_id or "-",
        "size": f"{human_bytes(size)} in {plural(len(manifest.files), 'file')}",
        "named by": ", ".join(pointers) or "no pointer",
        "fault": output.missing() or "none seen (sizes only; `yanmo store verify` reads all bytes)",
    }
    for name, value in rows.items():
        print(f"{name:<9} {value}")


def _print_inputs(manifest: Manifest) -> None:
    print("\nmade from")
    for name, value in sorted(manifest.inputs.items()):
        print(f"  {name} = {described(value)}")
    if not manifest.inputs:
        print("  nothing")
    if manifest.references:
        print("\ncommitted with")
        for name, value in sorted(manifest.references.items()):
            print(f"  {name} = {described(value)}")


def described(value: Any) -> str:
    """An input of a manifest in a few words."""
    if not value:
        return "none"
    if "manifest_uri" in value:
        return f"{value['stage']}/{value['key'][:12]}"
    files = value.get("files")
    several = f"{len(files)} raw file(s), " if isinstance(files, list) else ""
    return f"{several}{str(value.get('uri', 'raw input'))[:200]}, content {value['content_digest'][:12]}"


def _print_values(title: str, values: dict[str, Any]) -> None:
    if not values:
        return
    print(f"\n{title}")
    for name, value in sorted(values.items()):
        text = json.dumps(value, ensure_ascii=False)
        print(f"  {name} = {text if len(text) <= 200 else text[:200] + '...'}")


def _print_files(output: Output) -> None:
    entries = output.entries()
    shown = entries[:_MOST_FILES]
    rows = [("file", "bytes", "role", "sha256")]
    rows += [(e.path, str(e.bytes), e.role, e.sha256[:16]) for e in shown]
    print()
    print("\n".join(text_table(rows)))
    if len(shown) < len(entries):
        print(f"and {len(entries) - len(shown)} more (--json)")
