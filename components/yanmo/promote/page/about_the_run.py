"""What a run was about, beside its verdict: nothing new to train, or an earlier run's training finished.

The verdict, and the page that is kept with it, are of two models, whichever run asks for them again. So what
is of the run stands above the verdict in what this run hands over, and in its record in the store.
"""

from __future__ import annotations

import logging
from pathlib import Path

from yanmo.common.errors import DataError, EnvironmentFault
from yanmo.common.pages import html
from yanmo.promote.gate.verdict import Words
from yanmo.store.objects import ObjectStore
from yanmo.store.output import Output
from yanmo.store.runs.run_record import note_night, read_night

log = logging.getLogger(__name__)
_TEMPLATE = Path(__file__).with_name("about_the_run.html.jinja")
_HEADER = '<header class="verdict">'


def about_the_run(store: ObjectStore, channel: str, run_id: str, model: Output) -> Words | None:
    """Return what there is to say of a run of a pipeline that comes to judge `model`; it is recorded as well.

    None for a run that trained the model that its form asks for, and where the run left no record.
    """
    if not run_id:
        return None
    try:
        night = read_night(store, channel, run_id)
        made = model.manifest
        left = left_alone(night)
        if night.get("training") == "finish":
            words = finished(night, f"{model}")
        elif night.get("training") == "new" and made.run_id != run_id:
            words = nothing_new(f"{model}", made.run_id, made.created_at)
            since = {"since": made.run_id, "at": made.created_at, "model": made.key}
            note_night(store, channel, run_id, {"nothing_new": since})
        else:
            words = None
    except (OSError, DataError, EnvironmentFault) as error:  # must not undo a verdict
        log.warning("what this run was about is not said on the page: %s", error)
        return None
    said = [one for one in (words, left) if one is not None]
    if not said:
        return None
    return Words(" ".join(one.en for one in said), "".join(one.zh for one in said))


def left_alone(night: dict[str, object]) -> Words | None:
    """That somebody else's unfinished trainings were left alone, and what finishes them."""
    found = night.get("left_alone")
    left = [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []
    if not left:
        return None
    names = "; ".join(f"{one.get('training')}: {one.get('field')}" for one in left)
    return Words(
        f"Left alone, as a run with other options began it: {names} on a form finishes it.",
        f"由选项不同的运行开始，未予处理：{names}（填入表单即可完成它）。",
    )


def nothing_new(model: str, run_id: str, made_at: str) -> Words:
    """That the data and options of this run make a model that was there."""
    run, day = run_id or "without an id", _shown(made_at)
    return Words(
        f"Unchanged: found. The same data and options make {model}, which run {run} trained on {day}; "
        "the verdict is of then.",
        f"没有变化：已找到。同样的数据与选项得到 {model}，该模型由运行 {run} 于 {day} 训练；判定属于当时。",
    )


def judged_before(at: str) -> Words:
    """That the same comparison was judged by an earlier run."""
    return Words(f"Unchanged: found. The verdict is of {at}.", f"没有变化：已找到。判定属于 {at}。")


def finished(night: dict[str, object], model: str) -> Words:
    """That this run finished what an earlier one began."""
    begun = night.get("finishes")
    begun = begun if isinstance(begun, dict) else {}
    run, day = begun.get("run_id") or "?", _shown(str(begun.get("begun_at", "?")))
    return Words(
        f"This run finished {model}, which run {run} began on {day}, with the data and options of then; "
        "what is new since is not in it.",
        f"本次运行完成了 {model}：它由运行 {run} 于 {day} 开始，数据与选项同当时；其后的新内容不在其中。",
    )


def _shown(at: str) -> str:
    return at.replace("T", " ").removesuffix("+00:00") + " UTC"


def with_words(page: str, words: Words, *, is_old: bool, is_held: bool) -> str:
    """Return the page with these words above its verdict.

    Args:
        is_old: it was given by an earlier run, and loses its seal.
        is_held: the words say in the place of seal and headline that the model waits for a person.
    """
    note = html.render(_TEMPLATE, {}, words=words, is_old=is_old, is_held=is_held)
    return page.replace(_HEADER, f"{note}\n{_HEADER}", 1)
