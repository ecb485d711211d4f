"""Every metric that a page names is made, and every one that is made has its line."""

from __future__ import annotations

import ast
import functools
import re
import runpy

import pytest
from user_pages import ALL, ROOT, page_called

from yanmo.stage.shared_metrics import declared
from yanmo_pipelines.stages import LANGUAGE_MODEL


@functools.cache
def metrics_made() -> set[str]:
    """Every name on /metrics of any stage."""
    return {name for stage in LANGUAGE_MODEL for name, _ in declared(stage.name, stage.metrics)}


def test_every_metric_that_a_page_names_is_made() -> None:
    rooms = "|".join(sorted({name.split("_")[1] for name in metrics_made()}))
    metric = re.compile(rf"\byanmo_(?:{rooms})_[a-z_0-9]+")
    texts = {page: page.read_text(encoding="utf-8").replace("<stage>", "train") for page in ALL}
    named = {(page, name) for page, text in texts.items() for name in metric.findall(text)}
    assert sorted((str(page), name) for page, name in named if name not in metrics_made()) == []


@pytest.mark.parametrize(("page", "language"), [("metrics.md", "en"), ("metrics.zh.md", "zh")])
def test_the_page_of_metrics_is_what_the_stages_declare(page: str, language: str) -> None:
    written = runpy.run_path(str(ROOT / "docs/metrics.py"))["page"](language)
    said = "docs/metrics.py has another page: run python docs/metrics.py"
    assert page_called(page).read_text(encoding="utf-8") == written, said


SETTING = {"set", "add", "gone", "_set", "value"}


def test_every_declared_metric_is_set_somewhere_and_nothing_else_is() -> None:
    """By the names in calls; those that come from a table are texts of the same module."""
    texts, called = set[str](), dict[str, str]()
    for path in (ROOT / "components/yanmo").rglob("*.py"):
        if path.name in ("metrics.py", "declared.py", "shared_metrics.py", "gpu_metrics.py"):
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                texts.add(node.value)
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                owner = ast.unparse(node.func.value)
                is_ours = owner.endswith(("telemetry", "measured")) and node.func.attr in SETTING
                for argument in node.args[:1] if is_ours else ():
                    if isinstance(argument, ast.Constant):
                        called[argument.value] = f"{path.name}:{node.lineno}"
    names = {m.name for stage in LANGUAGE_MODEL for _, m in declared(stage.name, stage.metrics)}
    assert names - texts == set(), "declared, and set nowhere"
    assert {name: where for name, where in called.items() if name not in names} == {}
    assert len(called) > 20
