"""Tables of docs/reference that the code knows too: fields, pods, sizes, columns, guard metrics, rules."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from user_pages import page_called

from yanmo.evaluate.verse.verse_rules import RULES
from yanmo.formats.token_cache import INDEX
from yanmo.options.command_line import load
from yanmo.promote.gate.limits import LIMIT_METRICS
from yanmo.train.config import TrainConfig
from yanmo.train.options.sizes import SIZES
from yanmo_pipelines.compile import COMPILED
from yanmo_pipelines.parameters import form_of
from yanmo_pipelines.resources import COLUMNS


def table(page: str, *beginnings: str) -> Iterator[list[str]]:
    """The rows below a table's head that begins with these cells, in either language."""
    inside = False
    for line in page_called(page).read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if cells and cells[0] in beginnings:
            inside = True
        elif not cells:
            inside = False
        elif inside and set(line) - {"|", "-"}:
            yield cells


def names(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


@pytest.mark.parametrize("page", ["run-form.md", "run-form.zh.md"])
def test_the_form_has_these_fields_with_these_defaults(page: str) -> None:
    rows = list(table(page, "field", "字段"))
    shown = {name: names(row[1]) for row in rows for name in names(row[0])}
    form = form_of(COMPILED / "language_model.yaml")
    assert shown.keys() == form.keys()
    by_column = {name for name in form if name.startswith("training_pod_")}
    said = {name: field.get("defaultValue", "") for name, field in form.items() if name not in by_column}
    wanted = {name: f"{value:g}" if isinstance(value, float) else value for name, value in said.items()}
    assert {name: "".join(shown[name]) for name in wanted} == wanted


@pytest.mark.parametrize("page", ["run-form.md", "run-form.zh.md"])
def test_pods_have_these_resources(page: str) -> None:
    of_names = re.compile(r"`[^`]+`([,、] ?`[^`]+`)*")
    shown = {name: row[1:] for row in table(page, "") if of_names.fullmatch(row[0]) for name in names(row[0])}
    stages = shown.keys() & COLUMNS["small"].keys()
    assert stages == COLUMNS["small"].keys()
    for stage in stages:
        pods = [COLUMNS[column][stage] for column in ("small", "standard", "gpu")]
        assert shown[stage] == [f"{p.cpu}, {p.memory}" + f", {p.gpus} GPU" * (p.gpus > "0") for p in pods]


@pytest.mark.parametrize("page", ["train.md", "train.zh.md"])
def test_sizes_have_these_shapes(page: str) -> None:
    units = {"M": 1e6, "万": 1e4, "亿": 1e8}
    rows = {names(row[0])[0]: row[1:] for row in table(page, "`--size`")}
    assert rows.keys() == SIZES.keys()
    for size, (parameters, *shape) in rows.items():
        options = load(TrainConfig, ["--size", size, "--store", "here"], "yanmo train")
        number, unit = re.findall(r"([\d.,]+) ?(\S)", parameters)[0]
        shown = float(number.replace(",", "")) * units[unit]
        assert abs(shown - options.num_parameters(8192)) < 50_000
        wanted = [options.layers, options.width, options.heads, options.kv_heads, options.head_width]
        wanted += [options.feed_forward, options.context, options.batch_rows]
        assert [int(n) for n in re.findall(r"\d+", " ".join(shape).replace(",", ""))] == wanted


@pytest.mark.parametrize("page", ["stages.md", "stages.zh.md"])
def test_the_token_cache_has_these_columns(page: str) -> None:
    rows = {names(row[0])[0]: names(row[1]) for row in table(page, "file", "文件")}
    assert rows["documents-00000-of-00002.parquet"] == INDEX.names


@pytest.mark.parametrize("page", ["promote.md", "promote.zh.md"])
def test_limits_may_be_set_on_these_metrics(page: str) -> None:
    shown = [name for row in table(page, "metric", "指标") for name in names(row[0])]
    assert sorted(shown) == sorted(LIMIT_METRICS)


@pytest.mark.parametrize("page", ["evaluate.md", "evaluate.zh.md"])
def test_verse_has_these_rules(page: str) -> None:
    assert [names(row[0])[0] for row in table(page, "rule", "规则")] == [rule.name for rule in RULES]
