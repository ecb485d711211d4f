"""Making an output: attempt, lease, commit.

Two writers of one key never touch each other's objects: each writes below its own attempt, and
MANIFEST.json, created only if absent and written last, names the one that counts. The loser adopts it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import logging
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from yanmo.common import waiting
from yanmo.common.errors import DataError, StorageError, is_out_of_space
from yanmo.common.given_file import json_value
from yanmo.common.logs import human_seconds
from yanmo.common.names import maker_of
from yanmo.store.manifest import FileEntry, Manifest, Role, content_digest, make_key
from yanmo.store.objects import AlreadyExists, Damaged, ObjectStore, Written, check_name
from yanmo.store.output import Output, Pause, find_output, manifest_name, superseded_name
from yanmo.store.record import utc_now
from yanmo.store.runs.in_use import Removed, announce, lease_name
from yanmo.store.runs.lease import Lease

log = logging.getLogger(__name__)


class Attempt:
    """The files of one try at an output; invisible until its manifest is committed."""

    def __init__(self, store: ObjectStore, stage: str, key: str, lease: Lease) -> None:
        self.store, self.stage, self.key, self.lease = store, stage, key, lease
        self.id = lease.attempt
        self.prefix = f"cas/{stage}/{key}/{self.id}"
        self.directory = store.writable(self.prefix)
        self._files: dict[str, FileEntry] = {}

    def path(self, name: str) -> Path:
        """Return the place to write the file `name` to (folders are made); call `add` when it is whole."""
        check_name(f"{self.prefix}/{name}")
        path = self.directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def add(self, name: str, role: Role = "content") -> FileEntry:
        """Hash the file `name`, make it durable and list it in the manifest.

        Args:
            name: relative to the attempt.
            role: `content` enters the content digest; `record` (logs, timings, HTML) does not.
        """
        return self.add_all([name], role)[0]

    def add_all(
        self,
        names: Sequence[str],
        role: Role = "content",
        written: Mapping[str, Written] = MappingProxyType({}),
    ) -> list[FileEntry]:
        """`add` many files at once; faster than one after another where the store is far.

        Args:
            written: those of them that lie in the store already, as other machines made them.
        """
        mine = [name for name in names if name not in written]
        found = {**written, **dict(zip(mine, self.store.publish(self.prefix, mine), strict=True))}
        entries = [
            FileEntry(path=name, bytes=found[name].bytes, sha256=found[name].sha256, role=role)
            for name in names
        ]
        self._files.update({entry.path: entry for entry in entries})
        return entries

    def take_over(self, files: Sequence[tuple[Output, FileEntry, str]]) -> None:
        """List files of committed outputs as this one's, each under the name given; no bytes are moved.

        Raises:
            DataError: one is missing or changed.
        """
        for _, entry, name in files:
            check_name(f"{self.prefix}/{name}")
            self._files[name] = dataclasses.replace(entry, path=name)
        try:
            self.store.link([(output.wanted(e), f"{self.prefix}/{name}") for output, e, name in files])
        except Damaged as error:
            raise DataError(f"{error}; run the {maker_of(self.stage)} stage again with --force") from error

    def write(self, name: str, data: bytes | str, role: Role = "content") -> FileEntry:
        """Write the small file `name` at once and `add` it."""
        self.path(name).write_bytes(data.encode() if isinstance(data, str) else data)
        return self.add(name, role)

    def write_json(self, name: str, value: Any, role: Role = "content") -> FileEntry:
        """Write a document that is read whole."""
        return self.write(name, json.dumps(value, ensure_ascii=False, indent=1) + "\n", role)

    @property
    def files(self) -> tuple[FileEntry, ...]:
        return tuple(self._files[name] for name in sorted(self._files))

    def discard(self) -> None:
        """Remove what was written; called when the attempt did not win."""
        self.store.discard(self.prefix, list(self._files))


@dataclass(frozen=True, kw_only=True)
class Result:
    """What a stage's work gives back to be committed."""

    counts: dict[str, Any]
    """Content counts, part of the content digest: integers, strings, nested mappings of them."""
    metadata: dict[str, Any] = field(default_factory=dict)
    references: dict[str, Output] = field(default_factory=dict)
    """Output name -> part committed on the way (a tokenizer, an evaluation set)."""
    used: Sequence[Output] = ()
    """Parts that the next run may use again and the manifest does not name (shards that were taken over):
    gc counts their age from this run."""
    pause: Pause | None = None
    """Set where the work stopped before its end: nothing is committed."""


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """What an output is made from: everything in its key, and what is recorded with it."""

    stage: str
    revision: int
    semantic: dict[str, Any]
    inputs: dict[str, Any]
    """Input name -> `Output`, or {"content_digest": ..., "uri": ...} for raw files, or None."""
    execution: dict[str, Any] = field(default_factory=dict)
    run_id: str = ""
    channel: str = ""
    """For whom it is made; said in its lease alone."""

    @property
    def key(self) -> str:
        digests = {name: _digest_of(value) for name, value in self.inputs.items() if value}
        return make_key(self.stage, self.revision, self.semantic, digests)

    @property
    def outputs(self) -> dict[str, Output]:
        """The inputs that are outputs of this store."""
        return {name: value for name, value in self.inputs.items() if isinstance(value, Output)}


def _digest_of(value: Any) -> str:
    return value.content_digest if isinstance(value, Output) else str(value["content_digest"])


def find_whole(store: ObjectStore, stage: str, key: str) -> Output | None:
    """Return the committed output of a key, if all its files are there with their sizes."""
    output = find_output(store, stage, key)
    if output is None:
        return None
    fault = output.missing()
    if fault:
        log.warning("%s is committed but damaged (%s); making it again", output, fault)
        return None
    return output


def commit_once(
    store: ObjectStore,
    recipe: Recipe,
    build: Callable[[Attempt], Result],
    *,
    force: bool = False,
    wait_seconds: float = 1.0,
    taken_up: Callable[[Output], None] = lambda output: None,
) -> Output | None:
    """Return the committed output of `recipe`, made by `build` unless it is there already.

    Waits while another live run makes the same key, and adopts its result: to its end, or for
    --wait-seconds where that is set.

    Args:
        taken_up: called with the output before its lease is given back: no gc comes between. Where it
            raises Removed for the output itself, that is looked for, or made, again.

    Returns:
        The output, or None when `build` paused (its work stays below `runs/`).

    Raises:
        StorageError: another run was still making it at the end of the wait.
    """
    key = recipe.key
    note = {"channel": recipe.channel, "run_id": recipe.run_id}
    lease = Lease(store, lease_name(recipe.stage, key), uuid.uuid4().hex[:12], note=note)
    with waiting.Wait("lease") as wait:
        while True:
            found = None if force else find_whole(store, recipe.stage, key)
            if found is not None:
                try:
                    taken_up(found)
                    return found
                except Removed as error:
                    if error.which != found.reference:  # an input of this run: that does not come back alone
                        raise
                    log.info("%s was being removed by gc when it was taken up; looking again", found)
                    continue
            if lease.acquire():
                break
            _wait_for_another(wait, f"{recipe.stage}/{key[:12]}")
            time.sleep(wait_seconds)
    try:
        if not force:  # it may have been committed between the look and the lease
            found = find_whole(store, recipe.stage, key)
            if found is not None:
                taken_up(found)
                return found
        announce(store, recipe.stage, key, recipe.outputs)
        output = _build_and_commit(store, recipe, key, lease, build, force)
        if output is not None:
            taken_up(output)
        return output
    finally:
        lease.release()


def _wait_for_another(wait: waiting.Wait, what: str) -> None:
    """Note that another run makes `what`.

    Raises:
        StorageError: we have waited for it long enough.
    """
    waited, most = wait.because(f"it is making {what}"), waiting.longest_wait()
    if not waited:
        log.info("another run is making %s; waiting for it", what)
    if most and waited > most:
        raise StorageError(
            f"another run has been making {what} for the {human_seconds(waited)} that this one waited "
            "(--wait-seconds); run the same command again, or stop the other one"
        )


def _build_and_commit(
    store: ObjectStore,
    recipe: Recipe,
    key: str,
    lease: Lease,
    build: Callable[[Attempt], Result],
    force: bool,
) -> Output | None:
    attempt = Attempt(store, recipe.stage, key, lease)
    try:
        result = build(attempt)
        if result.pause:
            attempt.discard()
            return None
        if result.references:  # a part that was there already may be old, and named by nobody else
            parts = {f"part {name}": part for name, part in result.references.items()}
            parts |= {f"{part.manifest.stage} {part.manifest.key}": part for part in result.used}
            announce(store, recipe.stage, key, recipe.outputs | parts)
        lease.check()
        outcome = _commit(store, _manifest(recipe, key, attempt, result), force)
    except BaseException as error:
        if is_out_of_space(error) and not error.filename:  # pyarrow and others do not say where
            error.filename = f"{recipe.stage}/{key[:12]} in {store.uri}"
        # SIGTERM or a failing fsync may come just after the manifest became visible.
        if not _is_committed(store, attempt):
            attempt.discard()
        raise
    output = find_output(store, recipe.stage, key)
    assert output is not None
    if outcome == "ours":
        store.settle(attempt.prefix)  # local copies of the files may go
        return output
    attempt.discard()
    if outcome == "other parts":
        log.info("%s holds what it held before; its parts are now those made with it this time", output)
    else:
        log.info("%s was committed already, by another run or with equal content; adopted it", output)
    return output


def _manifest(recipe: Recipe, key: str, attempt: Attempt, result: Result) -> Manifest:
    return Manifest(
        stage=recipe.stage,
        key=key,
        revision=recipe.revision,
        attempt=attempt.id,
        files=attempt.files,
        counts=result.counts,
        metadata=result.metadata,
        options=recipe.semantic,
        execution=recipe.execution,
        inputs={name: _record_of(value) for name, value in recipe.inputs.items()},
        references={name: vars(part.reference) for name, part in result.references.items()},
        run_id=recipe.run_id,
        created_at=utc_now(),
        content_digest=content_digest(attempt.files, result.counts),
    )


def _record_of(value: Any) -> Any:
    return vars(value.reference) if isinstance(value, Output) else value


def _is_committed(store: ObjectStore, attempt: Attempt) -> bool:
    """Return whether the committed manifest names `attempt`; True when that cannot be known."""
    try:
        data, _ = store.read(manifest_name(attempt.stage, attempt.key))
        return bool(json_value(data)["attempt"] == attempt.id)
    except FileNotFoundError:
        return False
    except (OSError, ValueError, KeyError, TypeError):
        return True


_Outcome = Literal["ours", "other parts", "another's"]


def _commit(store: ObjectStore, manifest: Manifest, force: bool) -> _Outcome:
    """Write the manifest; returns what lies in its place now.

    The first of two whole outputs of one key stays, even if they differ (training on other ranks), as
    references may pin it already; only `force` replaces it: by one of other content, or, where the content is
    equal and the parts are not, by a manifest that names the same files and the new parts. A part that was
    not made this time (its text is not here) still belongs to this content, and stays.
    """
    name, data = manifest_name(manifest.stage, manifest.key), manifest.to_json()
    Manifest.from_json(data, "the manifest of this run")  # what no reader would take must not be committed
    try:
        store.create(name, data)
        return "ours"
    except AlreadyExists:
        old, version = store.read(name)
    outcome: _Outcome = "ours"
    current = _whole(store, manifest)
    if current is not None and current.attempt == manifest.attempt:
        return "ours"  # our own earlier try has won
    if current is not None and (not force or current.content_digest == manifest.content_digest):
        parts = current.references | manifest.references
        if not force or parts == current.references:
            return "another's"
        # Its files stay where they are: whoever has opened it reads on, and nothing is stored twice.
        data, outcome = dataclasses.replace(current, references=parts).to_json(), "other parts"
    # Forced or damaged: the new one takes its place, and the old manifest is kept.
    kept = superseded_name(manifest.stage, manifest.key, hashlib.sha256(old).hexdigest())
    with contextlib.suppress(AlreadyExists):  # kept by an earlier try that was killed here
        store.create(kept, old)
    store.replace(name, data, version)
    return outcome


def _whole(store: ObjectStore, ours: Manifest) -> Manifest | None:
    """Return the committed manifest of a key, unless it or one of its files is damaged."""
    try:
        found = find_whole(store, ours.stage, ours.key)
    except DataError:
        return None
    # Sizes are not enough here: --force must mend an object whose bytes changed.
    return None if found is None or found.is_damaged() else found.manifest
