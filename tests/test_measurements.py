"""What was measured stands on one page, in tables that a command writes from result files."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from typing import Any

import pytest
from user_pages import ROOT, page_called

COMMAND = ROOT / "docs/measurements.py"


@pytest.fixture(scope="module")
def of_command() -> dict[str, Any]:
    return runpy.run_path(str(COMMAND))


def test_the_tables_are_those_of_the_command(of_command: dict[str, Any]) -> None:
    for language, pages in enumerate(of_command["PAGES"]):
        for page in pages:
            text = (ROOT / page).read_text(encoding="utf-8")
            assert text == of_command["filled"](text, language), f"{page}: run python docs/measurements.py"


def test_both_pages_have_each_table_once(of_command: dict[str, Any]) -> None:
    for page in ("measurements.md", "measurements.zh.md"):
        text = page_called(page).read_text(encoding="utf-8")
        assert sorted(re.findall(r"^<!-- (\w+) -->$", text, re.M)) == sorted(
            of_command["BLOCKS"].keys() - {"results"}
        )


def test_every_result_file_has_its_place_on_the_page(of_command: dict[str, Any]) -> None:
    read = {f"{name}.json" for name in of_command["tables"].NAMES}
    source = (ROOT / "benchmarks/tables.py").read_text(encoding="utf-8")
    read |= set(re.findall(r'result\("([\w.]+)"\)', source))
    assert read == {path.name for path in (ROOT / "benchmarks/results").iterdir()}


def test_no_speed_is_shown_of_a_machine_that_had_other_work(of_command: dict[str, Any]) -> None:
    of_tables = of_command["tables"]
    row = of_tables.ROWS[0]
    spread = {"median": 1.5, "least": 1.2, "largest": 2.0}
    found = {"speed": spread, "memory": spread, "bits": {"mean": -0.1, "half": 0.02}, "load": 2.0, "cpus": 2}
    assert "| 1.50 (1.20 to 2.00) | 1.50 | -0.100 ± 0.020 |" in of_tables.optimization(row, found, 0)
    assert "|  | 1.50 | -0.100 ± 0.020 |" in of_tables.optimization(row, found | {"load": 2.1}, 0)


def test_docs_has_at_most_thirty_pages() -> None:
    english = [path for path in Path(ROOT / "docs").rglob("*.md") if not path.name.endswith(".zh.md")]
    assert len(english) <= 30


def test_the_output_that_readme_shows_has_the_figures_of_the_result(of_command: dict[str, Any]) -> None:
    columns = of_command["tables"].result("demo.json")["bits_per_character"]["columns"]
    known = {f"{cell['value']:.3f}" for one in columns for cell in (*one["rows"].values(), one["mean"])}
    code = re.findall(r"^    .*", (ROOT / "README.md").read_text(encoding="utf-8"), re.M)
    shown = re.findall(r"\d+\.\d{3}", "\n".join(code))
    assert len(shown) > 12 and [n for n in shown if n not in known] == []
