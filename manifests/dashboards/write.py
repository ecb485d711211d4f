"""Write manifests/components/dashboards/*.json: the dashboards, as Grafana 11 loads them.

    python manifests/dashboards/write.py

A test compares the files with what this writes. Needs grafana-foundation-sdk, which is one of the tools that
`make install` brings; who loads the dashboards does not.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from grafana_foundation_sdk.builders import (
    bargauge,
    common,
    prometheus,
    stat,
    statetimeline,
    table,
    timeseries,
)
from grafana_foundation_sdk.builders import dashboard as built
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import common as common_models
from grafana_foundation_sdk.models import dashboard as models
from grafana_foundation_sdk.models.prometheus import PromQueryFormat
from of_a_run import TRAINING_RUN
from of_nights import NIGHTS
from panels import ALERTS, STATE_COLORS, STATES, Dashboard, Panel, Query, Row, Variable

FOLDER = Path(__file__).parents[1] / "components/dashboards"
DASHBOARDS = (TRAINING_RUN, NIGHTS)
_WIDTH = 24
_SOURCE = models.DataSourceRef(type_val="prometheus", uid="${datasource}")


def _variable(variable: Variable) -> built.QueryVariable:
    every = models.VariableOption(selected=True, text="All", value="$__all")
    return (
        built.QueryVariable(variable.name)
        .label(variable.label)
        .description(variable.about)
        .datasource(_SOURCE)
        .query({"query": variable.query, "refId": variable.name, "qryType": 1})
        .refresh(models.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(models.VariableSort.NATURAL_ASC)
        .multi(True)
        .include_all(True)
        .all_value(".*")
        .current(every)
    )


def _query(query: Query, number: int, kind: str) -> prometheus.Dataquery:
    asked = prometheus.Dataquery().expr(query.expression).legend_format(query.legend)
    asked = asked.ref_id(chr(ord("A") + number)).datasource(_SOURCE)
    if kind == "table":
        return asked.instant().format(PromQueryFormat.TABLE)
    if kind == "name":
        return asked.instant()  # a state that is over would be named as well
    return asked.range()  # also of a single figure, so that a past run shows its last one


def _stat() -> stat.Panel:
    last = common.ReduceDataOptions().calcs(["lastNotNull"])
    return stat.Panel().reduce_options(last).graph_mode(common_models.BigValueGraphMode.NONE)


def _bars() -> bargauge.Panel:
    last = common.ReduceDataOptions().calcs(["lastNotNull"])
    made = bargauge.Panel().reduce_options(last).orientation(common_models.VizOrientation.HORIZONTAL)
    return made.display_mode(common_models.BarGaugeDisplayMode.BASIC)


def _name() -> stat.Panel:
    return _stat().text_mode(common_models.BigValueTextMode.NAME)


def _lines() -> timeseries.Panel:
    legend = (
        common.VizLegendOptions()
        .display_mode(common_models.LegendDisplayMode.LIST)
        .placement(common_models.LegendPlacement.BOTTOM)
        .show_legend(True)
        .calcs([])
    )
    tooltip = common.VizTooltipOptions().mode(common_models.TooltipDisplayMode.MULTI)
    return (
        timeseries.Panel()
        .legend(legend)
        .tooltip(tooltip.sort(common_models.SortOrder.DESCENDING))
        .line_width(1)
        .fill_opacity(0)
        .show_points(common_models.VisibilityMode.AUTO)
        .span_nulls(False)
    )


def _stack() -> timeseries.Panel:
    stacked = common.StackingConfig().mode(common_models.StackingMode.NORMAL).group("A")
    return _lines().stacking(stacked).fill_opacity(40)


def _states() -> statetimeline.Panel:
    named = {
        str(number): models.ValueMappingResult(text=text, color=color)
        for number, (text, color) in enumerate(zip(STATES, STATE_COLORS, strict=True), 1)
    }
    return statetimeline.Panel().mappings([models.ValueMap(named)]).row_height(0.8).merge_values(True)


def _table() -> table.Panel:
    hidden = dict.fromkeys(("Time", "Value", "__name__", "job", "instance", "alertstate"), True)
    organize = models.DataTransformerConfig(id_val="organize", options={"excludeByName": hidden})
    return table.Panel().with_transformation(organize)


_MADE: dict[str, Callable[[], Any]] = {
    "stat": _stat,
    "name": _name,
    "bars": _bars,
    "lines": _lines,
    "stack": _stack,
    "states": _states,
    "table": _table,
}


def _panel(panel: Panel, number: int, at: tuple[int, int]) -> Any:
    made = _MADE[panel.kind]().id(number).title(panel.title).datasource(_SOURCE)
    made = made.grid_pos(models.GridPos(h=panel.height, w=panel.width, x=at[0], y=at[1])).unit(panel.unit)
    if panel.description:
        made = made.description(panel.description)
    if panel.least is not None and panel.kind not in ("table", "states", "name"):
        made = made.min(panel.least)
    if panel.most is not None:
        made = made.max(panel.most)
    limits = [
        models.Threshold(value=value or None, color=color) for value, color in panel.limits or ((0, "blue"),)
    ]
    if panel.limits or panel.kind in ("stat", "name", "bars"):
        made = made.thresholds(built.ThresholdsConfig().mode(models.ThresholdsMode.ABSOLUTE).steps(limits))
    for place, query in enumerate(panel.queries):
        made = made.with_target(_query(query, place, panel.kind))
    return made


def placed(row: Row, top: int) -> Iterator[tuple[Panel, tuple[int, int]]]:
    """Each panel of a row with its place, from left to right and down; `top` is below the heading."""
    left, height = 0, 0
    for panel in row.panels:
        if left + panel.width > _WIDTH:
            left, top, height = 0, top + height, 0
        yield panel, (left, top)
        left, height = left + panel.width, max(height, panel.height)


def _with_rows(made: built.Dashboard, rows: tuple[Row, ...]) -> built.Dashboard:
    number = top = 0
    for row in rows:
        number += 1
        heading = built.Row(row.title).id(number).collapsed(not row.is_open)
        heading = heading.grid_pos(models.GridPos(h=1, w=_WIDTH, x=0, y=top))
        bottom = top + 1
        panels = []
        for panel, at in placed(row, top + 1):
            number += 1
            panels.append(_panel(panel, number, at))
            bottom = max(bottom, at[1] + panel.height)
        if row.is_open:
            made = made.with_row(heading)
            for panel in panels:
                made = made.with_panel(panel)
            top = bottom
        else:  # what a closed row holds takes no room below it
            for panel in panels:
                heading = heading.with_panel(panel)
            made = made.with_row(heading)
            top += 1
    return made


def text_of(dashboard: Dashboard) -> str:
    """The file."""
    made = (
        built.Dashboard(dashboard.title)
        .uid(f"yanmo-{dashboard.name}")
        .description(dashboard.about)
        .tags(["yanmo"])
        .editable()
        .time(dashboard.since, "now")
        .timezone("browser")
        .refresh(dashboard.refresh)
        .tooltip(models.DashboardCursorSync.CROSSHAIR)
        .link(
            built.DashboardLink("Yanmo")
            .type(models.DashboardLinkType.DASHBOARDS)
            .tags(["yanmo"])
            .as_dropdown(True)
            .include_vars(True)
            .keep_time(True)
        )
        .annotation(
            built.AnnotationQuery()
            .name("Alerts")
            .datasource(_SOURCE)
            .enable(True)
            .icon_color("red")
            .expr(ALERTS)
        )
        .with_variable(built.DatasourceVariable("datasource").label("Prometheus").type("prometheus"))
    )
    for variable in dashboard.variables:
        made = made.with_variable(_variable(variable))
    made = _with_rows(made, dashboard.rows)
    return json.dumps(made.build(), cls=JSONEncoder, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    for one in DASHBOARDS:
        (FOLDER / f"{one.name}.json").write_text(text_of(one), encoding="utf-8")
