"""The dashboard of the nights: the challenger and the champion, the verdicts, what the nights cost.

What a stage said last is looked for over a day, as its pod is long gone when somebody looks.
"""

from __future__ import annotations

from panels import ALERTS_NOW, CHANNEL, GPU, NAMESPACE, Dashboard, Panel, Row, one

_CHOSEN = '{namespace=~"$namespace",channel=~"$channel"}'
_DAY = "[1d:15s]"
"""In steps of a scrape: what one scrape saw alone is found."""
_POD = "instance, pod"


def _joined(metric: str, *labels: str) -> str:
    """What each pod says, with the stage and channel that it is of.

    At one moment: an address may be that of another stage an hour later, as in a pod that runs all of a
    night, or on a laptop.
    """
    info = f"max by ({_POD}, stage, channel) (yanmo_run_info{_CHOSEN})"
    said = f"max by ({', '.join((_POD, *labels))}) ({metric})"
    return f"{said} * on ({_POD}) group_left (stage, channel) {info}"


def _last_of_a_day(metric: str, *labels: str) -> str:
    """What the newest pod of a day said last."""
    newest = f"max by ({', '.join(('stage', 'channel', *labels))}) ({_joined(metric, *labels)})"
    return f"last_over_time(({newest}){_DAY})"


def _cost(name: str, *labels: str) -> str:
    """A figure that has the stage in its name, of all pods in a day."""
    found = _joined(f'{{__name__=~"yanmo_[a-z]+_{name}"}}', *labels)
    return f"sum by ({', '.join(('stage', 'channel', *labels))}) (last_over_time(({found}){_DAY}))"


def _one(title: str, expression: str, legend: str = "{{channel}}", **more: object) -> Panel:
    return one(title, expression, legend, **more)


NOW = Row(
    title="Now",
    panels=(
        _one(
            "The newest verdict",
            _last_of_a_day("yanmo_promote_verdict", "outcome") + " == 1",
            "{{channel}}: {{outcome}}",
            kind="name",
            width=6,
            height=4,
        ),
        _one(
            "Since the last promotion",
            _last_of_a_day("yanmo_promote_nights_since_promotion"),
            kind="stat",
            width=4,
            height=4,
            about="Nights of one recipe against one champion.",
        ),
        _one(
            "Champion since",
            f"time() - ({_last_of_a_day('yanmo_promote_champion_since_timestamp_seconds')})",
            kind="stat",
            unit="s",
            width=4,
            height=4,
            about="YanmoNoPromotion watches it.",
        ),
        _one(
            "Since a stage last ended well",
            "time() - max by (stage, channel) "
            '(yanmo_stage_last_success_timestamp_seconds{stage!="",channel=~"$channel"})',
            "{{stage}} · {{channel}}",
            kind="bars",
            unit="s",
            width=6,
            height=4,
            about="YanmoMissedNight watches that of promote.",
            needs="needs a Pushgateway, which the stages leave it at",
        ),
        ALERTS_NOW,
    ),
)
CHAMPION = Row(
    title="Challenger and champion",
    panels=(
        _one(
            "Bits per character, mean of the genres",
            _last_of_a_day("yanmo_promote_mean_bits_per_character", "model"),
            "{{model}} · {{channel}}",
            least=None,
            width=12,
            about="Of the last night of each day.",
        ),
        _one(
            "Bits per character by genre",
            _last_of_a_day("yanmo_promote_bits_per_character", "model", "genre"),
            "{{model}}, {{genre}} · {{channel}}",
            least=None,
            width=12,
        ),
        _one(
            "Verdicts",
            _last_of_a_day("yanmo_promote_verdict", "outcome") + " == 1",
            "{{outcome}} · {{channel}}",
            kind="stack",
            width=24,
        ),
    ),
)
COST = Row(
    title="Cost",
    panels=(
        _one(
            "Time of the stages, of a day",
            _cost("duration_seconds"),
            "{{stage}} · {{channel}}",
            kind="stack",
            unit="s",
            about="Wall time of what was made in the 24 hours before; what was found again costs nothing.",
        ),
        _one(
            "CPU time of the stages, of a day",
            _cost("cpu_seconds"),
            "{{stage}} · {{channel}}",
            kind="stack",
            unit="s",
        ),
        _one(
            "Energy, of a day",
            _cost("energy_joules", "device"),
            "{{device}}, {{stage}} · {{channel}}",
            kind="stack",
            unit="joule",
            needs=GPU,
        ),
    ),
)
NIGHTS = Dashboard(
    name="nights",
    title="Yanmo: the nights",
    about="The nightly runs of a channel: challenger and champion over time, verdicts, cost. "
    "Docs: docs/how-to/watch.md.",
    variables=(NAMESPACE, CHANNEL),
    rows=(NOW, CHAMPION, COST),
    since="now-30d",
    refresh="1m",
)
