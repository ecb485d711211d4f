"""What was measured stands on one page, in tables that a command writes from result files."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from typing import Any

import pytest
from user_pages import PAGES, ROOT, page_called

from yanmo.options.fields import option_fields
from yanmo_pipelines.stages import LANGUAGE_MODEL

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


FIGURE = re.compile(
    r"(?<![\w.,])\d[\d.,]* ?%|(?<![\w.,])\d[\d,]*\.\d+(?![\w.]*\d)"
    r"|(?<![\w.,])\d[\d,]*(?= times (?:as|the|more|less|faster|slower)\b)"
)
NOT_MEASURED = {
    "README.md": "2.17 3.11 3.13 4.0",  # versions
    "docs/explanation/recipe.md": "4.3",  # parameters, by the shape: test_pages.py
    "docs/explanation/store.md": "2.15 3.97",  # versions
    "docs/explanation/tokenizer.md": "0.3 0.85",  # a value to take, and a constant
    "docs/how-to/operate.md": "2.17",  # a version
    "docs/how-to/settings.md": "8.0",  # compute capability
    "docs/how-to/several-nodes.md": "2.3",  # a version
    "docs/reference/train.md": "4.3 39.9 108.6 344.0 7.0 8.0 0.025",  # parameters; capability; a definition
    "docs/tutorials/chat.md": "0.6",  # billion parameters, in the name of a model
    "docs/tutorials/first-hour.md": "2.28 3.11 3.12 3.13",  # versions
    "docs/tutorials/kubeflow.md": "1.30 2.17",  # versions
}
"""Page -> what looks like a measured figure there and is none."""


def figures(text: str) -> list[str]:
    """Decimals, percentages and multiples of prose and tables, but those in code, in links and of papers."""
    text = re.sub(r"<!-- (\w+) -->.*?<!-- /\1 -->", "", text, flags=re.DOTALL)
    text = re.sub(r"^    .*|`[^`]*`|\]\([^)]*\)|arXiv [\d.]+", " ", text, flags=re.M)
    return FIGURE.findall(text)


def defaults() -> set[str]:
    """Return those of all options of the stages, as numbers and as percentages."""
    values = {str(field.default) for stage in LANGUAGE_MODEL for field in option_fields(stage.config)}
    numbers = {float(value) for value in values if re.fullmatch(r"\d+\.\d+", value)}
    preset = {"0.999"}  # --adam-beta2 of `tiny`: test_pages.py compares the sizes
    return (
        {f"{n:g}" for n in numbers} | {str(n) for n in numbers} | {f"{100 * n:g} %" for n in numbers} | preset
    )


def test_no_measured_figure_stands_on_another_page() -> None:
    """What is no default, version or bound was measured: it belongs into a result file or the notes."""
    known = defaults()
    pages = {str(page.relative_to(ROOT)): page.read_text(encoding="utf-8") for page in PAGES}
    pages = {name: text for name, text in pages.items() if name.startswith("docs/") or "/" not in name}
    for name in ("measurements", "metrics"):
        del pages[f"docs/reference/{name}.md"]
    stray = {name: {*figures(text)} - known for name, text in pages.items()}
    assert len(pages) > 25
    assert {name: found for name, found in stray.items() if found} == {
        name: set(of_page.split()) for name, of_page in NOT_MEASURED.items()
    }


def test_a_measured_figure_would_be_found() -> None:
    text = (
        "It took 1.18 times, 0.04 % less, 12 times as fast (`0.99`, arXiv 2305.16264).\n\n    7.11 in code\n"
    )
    assert figures(text) == ["1.18", "0.04 %", "12"]


def test_the_output_that_readme_shows_has_the_figures_of_the_result(of_command: dict[str, Any]) -> None:
    columns = of_command["tables"].result("demo.json")["bits_per_character"]["columns"]
    known = {f"{cell['value']:.3f}" for one in columns for cell in (*one["rows"].values(), one["mean"])}
    code = re.findall(r"^    .*", (ROOT / "README.md").read_text(encoding="utf-8"), re.M)
    shown = re.findall(r"\d+\.\d{3}", "\n".join(code))
    assert len(shown) > 12 and [n for n in shown if n not in known] == []
