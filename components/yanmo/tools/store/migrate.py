"""`yanmo store migrate`: brings a store to the current schemas."""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
from collections import Counter
from collections.abc import Iterator

from yanmo.common.errors import ExitCode
from yanmo.common.plain_json import json_value
from yanmo.store.channel.document import kind_of_document
from yanmo.store.manifest import MANIFEST_SCHEMA, REFERENCE_SCHEMA, sealed, unsealed
from yanmo.store.objects import MAX_DOCUMENT_BYTES, AlreadyExists, Changed, ObjectStore
from yanmo.store.output import superseded_name
from yanmo.store.pointers import RECORD_SCHEMA
from yanmo.store.runs.run_record import is_run_record
from yanmo.store.schema import check_manifest, check_reference, parse
from yanmo.tools.store.inventory import Inventory, take
from yanmo.tools.store.options import MigrateOptions

log = logging.getLogger(__name__)


def run(store: ObjectStore, options: MigrateOptions) -> int:
    counts: Counter[str] = Counter()
    faults: list[str] = []
    inventory = take(store, leftovers=False)
    for name, schema in _documents(inventory):
        try:
            counts[schema] += _brought_forward(store, name, schema, options.write)
        except FileNotFoundError:
            continue
        except ValueError as error:
            faults.append(f"{store.uri}/{name}: {error}")
            print(faults[-1])
        counts["all"] += 1
    old = sum(counts.values()) - counts["all"]
    done = "rewritten" if options.write else "to be rewritten (--write does it)"
    print(
        f"{counts['all']} documents read: {counts['all'] - old - len(faults)} current, {old} {done}, "
        f"{len(faults)} unreadable"
    )
    stay = _replaced_and_old(store, inventory)
    if stay:
        print(f"{stay} manifests that were replaced stay at an older schema, as references pin their bytes")
    if faults:
        log.error(
            "%d document(s) cannot be read and stay as they are; the first: %s; see `yanmo store verify`",
            len(faults),
            faults[0],
        )
    return ExitCode.DATA if faults else ExitCode.DONE


def _replaced_and_old(store: ObjectStore, inventory: Inventory) -> int:
    """How many replaced manifests are of an older schema; damaged ones are passed over."""
    found = 0
    for info in (info for folder in inventory.keys.values() for info in folder.old_manifests):
        with contextlib.suppress(FileNotFoundError, ValueError):
            data, _ = store.read(info.name)
            parse(unsealed(data), MANIFEST_SCHEMA, MAX_DOCUMENT_BYTES)
            found += json_value(data)["schema"] != MANIFEST_SCHEMA
    return found


def _documents(inventory: Inventory) -> Iterator[tuple[str, str]]:
    """Every document of the store and the schema it should have."""
    for folder in inventory.keys.values():
        if folder.manifest:
            yield folder.manifest.name, MANIFEST_SCHEMA
    for info in inventory.pointers:
        if not is_run_record(info.name) and not kind_of_document(info.name):  # of one version only
            yield info.name, RECORD_SCHEMA if "/history/" in info.name else REFERENCE_SCHEMA


def _brought_forward(store: ObjectStore, name: str, schema: str, write: bool) -> int:
    """`_migrate`, tried again where another process changed the document in between."""
    while True:
        with contextlib.suppress(Changed):
            return _migrate(store, name, schema, write)


def _migrate(store: ObjectStore, name: str, schema: str, write: bool) -> int:
    """1 when the document was (or would be) rewritten, 0 when it is current.

    Raises:
        ValueError: it is damaged, or of a schema that this version does not know.
        Changed: another process changed it since it was read.
    """
    data, version = store.read(name)
    values = parse(unsealed(data), schema, MAX_DOCUMENT_BYTES)
    if schema == MANIFEST_SCHEMA:
        check_manifest(values)
    elif schema == REFERENCE_SCHEMA:
        check_reference(values)
    if json_value(data)["schema"] == schema:
        return 0
    if write:
        document = json.dumps(values, ensure_ascii=False, indent=1).encode()
        if schema == MANIFEST_SCHEMA:  # references pin its sha256, so the older one stays next to it
            kept = superseded_name(values["stage"], values["key"], hashlib.sha256(data).hexdigest())
            with contextlib.suppress(AlreadyExists):
                store.create(kept, data)
        new = document + b"\n" if schema == REFERENCE_SCHEMA else sealed(document)
        store.replace(name, new, version)
        log.info("rewrote %s", name)
    return 1
