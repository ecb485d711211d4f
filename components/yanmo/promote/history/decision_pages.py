"""How a held model stands, on the pages that a person opens: that of its verdict, and that of its night.

    nights/<channel>/held-<verdict>.html    the verdict's page, which follows the decision

The page that is kept with the verdict is written once, before anybody decided; it leads to that one. A page
that a kill left behind is mended by the next command about the model, or the next night that judges it.
"""

from __future__ import annotations

from typing import Any

from yanmo.nights.changing import put_page
from yanmo.nights.night import night_date
from yanmo.nights.places import held_page_name
from yanmo.nights.record import read_record
from yanmo.nights.settings import team_zone
from yanmo.nights.telling import Run, never_failing, tell_verdict
from yanmo.promote.gate.verdict import Decision
from yanmo.promote.history.champion import CHAMPION
from yanmo.promote.history.holding import decision_of, place_of
from yanmo.promote.history.told_night import held_row
from yanmo.promote.page.about_the_run import about_the_run, with_words
from yanmo.promote.page.rendering import render
from yanmo.store.channel.held import Entry, read_held
from yanmo.store.manifest import Reference
from yanmo.store.objects import ObjectStore
from yanmo.store.output import open_reference, read_json
from yanmo.store.pointers import read_pointer

_TRIES = 20


def show_decision(store: ObjectStore, channel: str, model: Reference) -> None:
    """Let the page of a held model's verdict say how it stands; what goes wrong is a warning."""
    with never_failing(_run(store, channel)):
        _shown(store, channel, model)


def tell_decision(store: ObjectStore, channel: str, model: Reference) -> str:
    """The same, and let the night that made the model, its row and the chat say so too.

    Returns:
        The page; "" where it could not be made.
    """
    page = ""
    with never_failing(_run(store, channel)):
        entry = _shown(store, channel, model)
        if entry is None:
            return page
        report, decision = _report(store, entry), _decision(store, channel, entry)
        page = render(report, decision)
        if not entry.run_id or read_record(store, channel, entry.run_id) is None:
            return page
        row = held_row({"sentence": report["verdict"]["sentence"]}, decision)
        about = about_the_run(store, channel, entry.run_id, open_reference(store, model))
        tell_verdict(
            _run(store, channel, entry.run_id),
            row,
            lambda night: with_words(render(report, decision, night), about),
        )
    return page


def tell_waiting(store: ObjectStore, channel: str, but: Reference | None = None) -> None:
    """Let the pages of all models that wait say how they stand, once the channel has another champion.

    Args:
        but: a model whose pages say it already.
    """
    waiting: list[Entry] = []
    with never_failing(_run(store, channel)):
        waiting = read_held(store, channel).open(store.clock())
    for entry in waiting:
        if but is None or entry.model.content_digest != but.content_digest:
            tell_decision(store, channel, entry.model)


def _run(store: ObjectStore, channel: str, run_id: str = "") -> Run:
    name, zone = team_zone()
    date = night_date(store.clock(), zone)
    return Run(store=store, channel=channel, run_id=run_id, date=date, timezone=name)


def _shown(store: ObjectStore, channel: str, model: Reference) -> Entry | None:
    """The entry of a model, once the page says what it says; None where there is none."""
    for _ in range(_TRIES):
        entry = read_held(store, channel).of(model.content_digest)
        if entry is None:
            break
        page = render(_report(store, entry), _decision(store, channel, entry))
        name = held_page_name(channel, entry.verdict.key)
        put_page(store, name, 0, lambda page=page: page, again=True)  # type: ignore[misc]
        if read_held(store, channel).of(model.content_digest) == entry:  # else somebody decided meanwhile
            return entry
    return None


def _decision(store: ObjectStore, channel: str, entry: Entry) -> Decision:
    """How it stands; where an approval was killed once the pointer had moved, it is approved."""
    champion = read_pointer(store, channel, CHAMPION)
    return decision_of(entry, champion, store.clock(), place_of(store, channel))


def _report(store: ObjectStore, entry: Entry) -> dict[str, Any]:
    report: dict[str, Any] = read_json(open_reference(store, entry.verdict), "report.json")
    return report
