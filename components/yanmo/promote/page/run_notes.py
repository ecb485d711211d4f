"""What a run says of itself above the verdict, or in its place: found, finished, held, paused.

The verdict, and the page that is kept with it, are of two models, whichever run asks for them again. So what
is of the run stands above the verdict in what this run hands over, and in its record in the store.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from yanmo.common.errors import DataError, EnvironmentFault
from yanmo.common.pages import html
from yanmo.common.words import Words, together
from yanmo.store.champion_records import shown_time
from yanmo.store.objects import ObjectStore
from yanmo.store.output import Output, PausedOutput
from yanmo.store.pointers import place_flags
from yanmo.store.runs.run_record import note_night, read_night

log = logging.getLogger(__name__)
_TEMPLATE = Path(__file__).with_name("run_notes.html.jinja")
_PAUSED = Path(__file__).with_name("paused.html.jinja")
_HEADER = '<header class="verdict">'


def run_note(store: ObjectStore, channel: str, run_id: str, model: Output) -> Words | None:
    """Return what there is to say of a run of a pipeline that comes to judge `model`; it is recorded as well.

    None for a run that trained the model that its form asks for, and where the run left no record.
    """
    if not run_id:
        return None
    try:
        night, made = read_night(store, channel, run_id), model.manifest
        words = None
        if night.get("training") == "finish":
            words = _finished(night.get("finishes") or {}, model)
        elif night.get("training") == "new" and made.run_id != run_id:
            words = _nothing_new(model)
            since = {"since": made.run_id, "at": made.created_at, "model": made.key}
            note_night(store, channel, run_id, {"nothing_new": since})
        left = left_alone(night)
    except (OSError, DataError, EnvironmentFault) as error:  # must not undo a verdict
        log.warning("what this run was about is not said on the page: %s", error)
        return None
    return together(words, left) if words or left else None


def left_alone(night: Mapping[str, Any]) -> Words | None:
    """That somebody else's unfinished trainings were left alone, and what finishes them."""
    names = "; ".join(f"{one['training']}: {one['field']}" for one in night.get("left_alone") or ())
    if not names:
        return None
    return Words(
        f"Left alone, as a run with other options began it: {names} on a form finishes it.",
        f"由选项不同的运行开始，未予处理：{names}（填入表单即可完成它）。",
    )


def _nothing_new(model: Output) -> Words:
    """That the data and options of this run make a model that was there."""
    run, day = model.manifest.run_id or "without an id", shown_time(model.manifest.created_at)
    return Words(
        f"Unchanged: found. The same data and options make {model}, which run {run} trained on {day}; "
        "the verdict is of then.",
        f"没有变化：已找到。同样的数据与选项得到 {model}，该模型由运行 {run} 于 {day} 训练；判定属于当时。",
    )


def judged_before(at: str) -> Words:
    """That the same comparison was judged by an earlier run."""
    day = shown_time(at)
    return Words(f"Unchanged: found. The verdict is of {day}.", f"没有变化：已找到。判定属于 {day}。")


def _finished(begun: Mapping[str, Any], model: Output) -> Words:
    """That this run finished what an earlier one began."""
    run, day = begun.get("run_id") or "?", shown_time(str(begun.get("begun_at", "?")))
    return Words(
        f"This run finished {model}, which run {run} began on {day}, with the data and options of then; "
        "what is new since is not in it.",
        f"本次运行完成了 {model}：它由运行 {run} 于 {day} 开始，数据与选项同当时；其后的新内容不在其中。",
    )


def waits(store: ObjectStore, channel: str, model: Output) -> Words:
    """That a winner waits for a person, and what makes it champion."""
    place = place_flags(store, channel)
    command = f"yanmo promote set train/{model.manifest.key[:12]} {place} --why ..."
    return Words(
        f"The champion stays as it is until a person moves it: {command}",
        f"在有人移动之前，冠军不变：{command}",
    )


def with_words(page: str, words: Words, *, is_old: bool, is_held: bool) -> str:
    """Return the page with these words above its verdict.

    Args:
        is_old: it was given by an earlier run, and loses its seal.
        is_held: the words say in the place of seal and headline that the model waits for a person.
    """
    note = html.render(_TEMPLATE, {}, words=words, is_old=is_old, is_held=is_held)
    return page.replace(_HEADER, f"{note}\n{_HEADER}", 1)


def pause_sentence(paused: PausedOutput) -> Words:
    """At which step a training paused, why, and how it goes on."""
    return Words(
        f"Paused at {paused.where} ({paused.why}): the channel's next run goes on there, with the data and "
        "options that this training began with.",
        f"已暂停于 {paused.where}（{paused.why}）：该频道的下一次运行从该处继续，数据与选项同训练开始时。",
    )


def render_pause(paused: PausedOutput, channel: str, champion: str) -> str:
    """The page of a run that has no model to judge yet, because its training paused, as HTML.

    Args:
        champion: as a person calls it; empty where the channel has none.
    """
    said = pause_sentence(paused)
    return html.render(_PAUSED, {}, paused=paused, channel=channel, champion=champion, sentence=said)
