"""Where a run's results go: the channel's pointers, references, KFP's outputs.

What cannot go there is refused before the work (`check_pointers`), not after it.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import re
from collections.abc import Mapping
from typing import Any

from yanmo.common.errors import UsageError
from yanmo.options.fields import NONE
from yanmo.options.shared import StageOptions
from yanmo.stage.declaration import Stage
from yanmo.stage.failing import leave_message
from yanmo.stage.kfp_outputs import ExecutorOutputs
from yanmo.stage.stage_run import Finish, Made, Options, StageRun, Steps
from yanmo.store.named import CARRIED, Wanted, find_named
from yanmo.store.objects import ObjectStore
from yanmo.store.output import Output, PausedOutput
from yanmo.store.pointers import check_movable, move_pointer, pointer_name
from yanmo.store.runs.in_use import check_present
from yanmo.store.runs.run_record import add_to_run

log = logging.getLogger(__name__)


def check_pointers(stage: Stage, options: StageOptions, store: ObjectStore) -> None:
    """Refuse names of pointers that cannot be, and a pointer that cannot be moved, before the work.

    It is the stage's own pointer that is looked at, which is moved last: where it cannot be, those of parts
    would have moved without it.
    """
    for name in (
        options.pointer or stage.name,
        *(_part_pointer(options.pointer, each) for each in stage.outputs),
    ):
        pointer_name(options.channel, name)
    if options.pointer != NONE:
        check_movable(store, options.channel, options.pointer or stage.name)


def hand_over(
    run: StageRun[Options, Made], output: Output, shown: Finish, outputs: ExecutorOutputs | None
) -> dict[str, Output]:
    """Move the channel's pointers and write the references that the caller asked for; gives the parts."""
    stage, options = run.stage, run.options
    parts = {name: output.part(name) for name in output.manifest.references} | shown.references
    if options.pointer != NONE:
        moved = {_part_pointer(options.pointer, name): part.reference for name, part in parts.items()}
        moved[options.pointer or stage.name] = output.reference
        for name, reference in moved.items():
            move_pointer(run.store, options.channel, name, reference)
        if options.run_id:
            add_to_run(run.store, options.channel, options.run_id, moved)
    check_present(run.store, [output, *parts.values()])  # after the pointers: see in_use.announce
    shown = shown_of(stage, output, parts, shown)
    write_results(stage, options, output.reference.to_json(), shown, outputs, status=run.came_by)
    return parts


def shown_of(stage: Stage, output: Output, parts: Mapping[str, Output], shown: Finish) -> Finish:
    """Return what KFP is handed: a reference for each artifact, and what its UI shows of it.

    A part that has no artifact of its own travels inside the main output's.
    """
    own = {name: part for name, part in parts.items() if name in stage.outputs}
    inside = {name: part for name, part in parts.items() if name not in own} | (shown.carried or {})
    carried = {name: vars(part.reference) for name, part in inside.items()}
    is_said = carried or shown.carried is not None
    body = {**vars(output.reference), **({CARRIED: carried} if is_said else {})}
    bodies = {name: part.reference.to_json() for name, part in own.items()}
    described = {name: _described(part) for name, part in {stage.main_output: output, **own}.items()}
    metadata = {name: {**described.get(name, {}), **shown.metadata.get(name, {})} for name in stage.outputs}
    return dataclasses.replace(
        shown,
        artifacts={
            **shown.artifacts,
            **bodies,
            stage.main_output: json.dumps(body, indent=1) + "\n",
        },
        metadata=metadata,
    )


def hand_on(stage: Stage, options: Options, store: ObjectStore, outputs: ExecutorOutputs | None) -> None:
    """Hand over the output that --take names, made by an earlier run, in the place of one of this run.

    Raises:
        DataError, UsageError: it names none of this stage.
    """
    name = stage.name
    wanted = Wanted(where="--take", stages=(name,), pointers=(name,), channel=options.channel)
    output = find_named(store, options.take, wanted)
    if output is None:
        raise UsageError(f"--take {options.take}: expected an output of {stage.name}, or no --take at all")
    parts = {name: output.part(name) for name in output.manifest.references}
    log.info("handing on %s of an earlier run, with which a training is finished; nothing is made", output)
    if options.pointer != NONE and options.run_id:
        named = {_part_pointer(options.pointer, name): part.reference for name, part in parts.items()}
        named[options.pointer or stage.name] = output.reference
        add_to_run(store, options.channel, options.run_id, named)
    shown = shown_of(stage, output, parts, Finish())
    write_results(stage, options, output.reference.to_json(), shown, outputs)


def pass_on(
    stage: Stage,
    options: Options,
    paused: PausedOutput,
    steps: Steps[Options, Made],
    store: ObjectStore,
    outputs: ExecutorOutputs | None,
) -> None:
    """End well, with the pause in the place of an output: no key is committed, no pointer moved."""
    log.info("nothing to do: %s", paused)
    shown = steps.show_pause(options, store, paused) if steps.show_pause else Finish()
    write_results(stage, options, paused.to_json(), shown, outputs, status="paused")


def write_results(
    stage: Stage,
    options: StageOptions,
    main_output: str,
    shown: Finish,
    outputs: ExecutorOutputs | None,
    *,
    status: str = "found",
) -> None:
    """Write what stands for the main output, and what else is shown, to where the caller asked for it.

    In a pod it is the termination message too: so a launcher of several pods, and `kubectl get pod -o yaml`,
    learn what was made.

    Args:
        status: made, found or paused, as a pipeline's page shows it.
    """
    leave_message(main_output.splitlines())
    if outputs:
        empty = dict.fromkeys(stage.parameters, "")
        bodies = {stage.main_output: main_output, **shown.artifacts}
        outputs.write(bodies, shown.metadata, {**empty, **shown.parameters, "status": status})


def _described(output: Output) -> dict[str, Any]:
    """Return what KFP's page says of an artifact, whose own bytes are a reference: scalars alone."""
    manifest = output.manifest
    place = re.sub("^minio://", "s3://", output.store.uri)  # KFP's name of its own bucket, which others lack
    licenses = manifest.metadata.get("licenses")
    shown = {"licenses": ", ".join(sorted(licenses))} if isinstance(licenses, dict) else {}
    return {
        "bytes_at": f"{place}/cas/{manifest.stage}/{manifest.key}/{manifest.attempt}",
        "megabytes": round(sum(entry.bytes for entry in manifest.files) / 1e6, 3),
        **{name: _total(value) for name, value in manifest.counts.items()},
        **shown,
    }


def _total(count: Any) -> Any:
    """A count, or the sum of one that is given by split and genre."""
    return sum(map(_total, count.values())) if isinstance(count, dict) else count


def _part_pointer(pointer: str, part: str) -> str:
    """Return the pointer of an output other than the main one: not the channel's own if another was asked."""
    return f"{pointer}_{part}" if pointer else part
