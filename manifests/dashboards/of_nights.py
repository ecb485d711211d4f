"""The dashboard of the nights: the champion, the verdicts, which nights were missed, what they cost.

What no pod can say comes from `yanmo status --serve`, which is there when no stage is. What a stage said last
is looked for over a day, as its pod is long gone when somebody looks.
"""

from __future__ import annotations

from panels import ALERTS_NOW, CHANNEL, NAMESPACE, Dashboard, Panel, Query, Row, Variable, one

_CHOSEN = '{namespace=~"$namespace",channel=~"$channel"}'
_DAY = "[1d:15s]"
"""In steps of a scrape: what one scrape saw alone is found."""
_BAD = 'state=~"missed|failed"'
_POD = "instance, pod"


def _of(metric: str, *more: str) -> str:
    """A metric of the exporter, of the channels that are chosen."""
    return metric + _CHOSEN.replace("}", "".join(f",{each}" for each in more) + "}")


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
            "The newest night",
            f"{_of('yanmo_night_state')} == 1",
            "{{channel}}: {{state}}",
            kind="name",
            width=4,
            height=4,
            about="due, begun, met, paused, failed, missed or unknown. YanmoMissedNight watches it.",
        ),
        _one(
            "Until the next one",
            f"{_of('yanmo_night_next_timestamp_seconds')} - time()",
            kind="stat",
            unit="s",
            width=4,
            height=4,
        ),
        _one(
            "Missed or failed, of 14",
            f"sum by (channel) ({_of('yanmo_channel_nights', _BAD)})",
            kind="stat",
            limits=((0, "green"), (1, "red")),
            width=4,
            height=4,
        ),
        _one(
            "Champion: bits per character",
            _of("yanmo_channel_champion_mean_bits_per_character"),
            kind="stat",
            width=4,
            height=4,
            about="Mean over genres.",
        ),
        _one(
            "Champion since",
            f"time() - {_of('yanmo_channel_champion_since_timestamp_seconds')}",
            kind="stat",
            unit="s",
            width=4,
            height=4,
            about="YanmoNoPromotion watches it.",
        ),
        ALERTS_NOW,
    ),
)
CHAMPION = Row(
    title="The champion",
    panels=(
        _one(
            "Bits per character, mean of the genres",
            _of("yanmo_channel_champion_mean_bits_per_character"),
            least=None,
            width=12,
            about="Each step down is a promotion; a step up a rollback, or another evaluation set.",
        ),
        _one(
            "Bits per character by genre",
            _of("yanmo_channel_champion_bits_per_character"),
            "{{genre}} · {{channel}}",
            least=None,
            width=12,
        ),
        _one(
            "Promotions and rollbacks",
            _of("yanmo_channel_champion_changes_total"),
            about="Of the channel's whole history.",
        ),
        _one(
            "Challenger and champion",
            _last_of_a_day("yanmo_promote_mean_bits_per_character", "model"),
            "{{model}} · {{channel}}",
            least=None,
            about="Bits per character of the last night of each day, mean over genres.",
        ),
        _one(
            "The same by genre",
            _last_of_a_day("yanmo_promote_bits_per_character", "model", "genre"),
            "{{model}}, {{genre}} · {{channel}}",
            least=None,
        ),
    ),
)
VERDICTS = Row(
    title="Verdicts",
    panels=(
        _one(
            "The newest verdict",
            f"{_of('yanmo_channel_verdict')} == 1",
            "{{outcome}} · {{channel}}",
            kind="stack",
        ),
        _one("Verdicts so far", _of("yanmo_channel_verdicts"), "{{outcome}} · {{channel}}", kind="stack"),
        Panel(
            title="Since the last promotion",
            queries=(
                Query(_last_of_a_day("yanmo_promote_nights_since_promotion"), "nights · {{channel}}"),
                Query(
                    _last_of_a_day("yanmo_promote_verdict", "outcome") + " == 1", "{{outcome}} · {{channel}}"
                ),
            ),
            about="Nights of one recipe against one champion, and how the last of a day ended.",
        ),
    ),
)
NIGHTS_OF_A_CHANNEL = Row(
    title="Nights",
    panels=(
        _one(
            "The newest 14, by how they went",
            _of("yanmo_channel_nights"),
            "{{state}} · {{channel}}",
            kind="stack",
            width=12,
        ),
        _one(
            "Since a stage last ended well",
            _of("yanmo_channel_last_success_age_seconds"),
            "{{stage}} · {{channel}}",
            unit="s",
            width=12,
        ),
        _one(
            "Being made now",
            _of("yanmo_work_running"),
            "{{stage}} · {{channel}}",
            kind="stack",
            needs="needs a stage that is at work at that moment",
        ),
        _one(
            "For how long",
            _of("yanmo_work_running_seconds"),
            "{{stage}} · {{channel}}",
            unit="s",
            needs="needs a stage that is at work at that moment",
        ),
        Panel(
            title="Left behind",
            queries=(
                Query('yanmo_work_left{namespace=~"$namespace"}', "{{stage}}"),
                Query('yanmo_work_failed{namespace=~"$namespace"}', "{{stage}}, failed"),
            ),
            about="Work that was saved and that nobody goes on with; `yanmo status` names it.",
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
            needs="needs a GPU, or a processor that counts its energy (RAPL)",
        ),
    ),
)
STORE = Row(
    title="The store",
    panels=(
        _one(
            "Size",
            'yanmo_store_size_bytes{namespace=~"$namespace"}',
            "{{part}}",
            kind="stack",
            unit="bytes",
            about="When it was last counted (--count-seconds).",
        ),
        _one("Objects", 'yanmo_store_objects{namespace=~"$namespace"}', "{{part}}", kind="stack"),
        Panel(
            title="The exporter's looks at it",
            queries=(
                Query('yanmo_status_look_age_seconds{namespace=~"$namespace"}', "since the last"),
                Query('yanmo_status_look_seconds{namespace=~"$namespace"}', "how long it took"),
                Query('yanmo_store_size_age_seconds{namespace=~"$namespace"}', "since it was counted"),
            ),
            unit="s",
        ),
        _one(
            "Whether it answers",
            'yanmo_status_store_up{namespace=~"$namespace"}',
            "store",
            most=1.0,
            about="YanmoStoreUnseen watches it.",
        ),
        _one("Damaged pointers", 'yanmo_status_damaged{namespace=~"$namespace"}', "files"),
        _one(
            "Looks",
            'rate(yanmo_status_looks_total{namespace=~"$namespace"}[$__rate_interval])',
            "{{result}}",
            unit="suffix: /s",
        ),
    ),
)

OF_CHANNELS = Variable(
    name="channel",
    label=CHANNEL.label,
    about=CHANNEL.about,
    query='label_values(yanmo_channel_last_success_timestamp_seconds{namespace=~"$namespace"}, channel)',
)
NIGHTS = Dashboard(
    name="nights",
    title="Yanmo: the nights",
    about="The nightly runs of a channel: the champion's bits over time, verdicts, missed nights, cost. "
    "Needs `yanmo status --serve`. Docs: docs/dashboards.md.",
    variables=(NAMESPACE, OF_CHANNELS),
    rows=(NOW, CHAMPION, VERDICTS, NIGHTS_OF_A_CHANNEL, COST, STORE),
    since="now-30d",
    refresh="1m",
)
