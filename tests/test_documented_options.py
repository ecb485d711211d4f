"""Every field, default and preset that a page for users names is one; test_named_commands.py has options."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from user_pages import ALL, ROOT, code_of, page_called, prose_and_code

from yanmo.options.fields import flag, option_fields
from yanmo_pipelines.stages import LANGUAGE_MODEL


def test_every_field_of_the_run_form_that_a_page_sets_is_there() -> None:
    compiled = (ROOT / "pipelines/compiled/language_model.yaml").read_text(encoding="utf-8")
    form = set(re.findall(r"^#    (\w+): ", compiled, re.M))
    ours = {c: page.name for page in ALL for c in code_of(page) if "yanmo run" in c or c.startswith("make")}
    field = re.compile(r"(?:--set[ =]\"?|SET=\"|\s)(\w+_\w+)=")
    assert "train_steps" in form
    assert [(page, n) for code, page in ours.items() for n in field.findall(code) if n not in form] == []


def defaults_in(page: Path) -> list[tuple[str, str]]:
    """Option and value of each row of a table whose second column is the default."""
    found, in_table = [], False
    for line in prose_and_code(page)[0].splitlines():
        cells = [cell.strip(" `") for cell in line.strip("|").split("|")]
        if line.startswith("|") and cells[1] in ("default", "默认"):
            in_table = True
        elif not line.startswith("|"):
            in_table = False
        elif in_table and re.fullmatch(r"--[a-z-]+", cells[0]):
            found.append((cells[0], cells[1].replace(",", "")))
    return found


def test_defaults_in_tables_are_those_of_the_code() -> None:
    every: dict[str, set[str]] = {}
    for stage in LANGUAGE_MODEL:
        for field in option_fields(stage.config):
            value = str(field.default).lower() if isinstance(field.default, bool) else str(field.default)
            every.setdefault(flag(field.name), set()).add(value)
    found = [(page.name, *row) for page in ALL for row in defaults_in(page)]
    assert [row for row in found if row[2] not in every.get(row[1], {row[2]})] == []


def test_defaults_are_found_in_tables() -> None:
    assert ("--context", "64") in defaults_in(page_called("packing.md"))
    assert ("--dictionary-weight", "0.03") in defaults_in(page_called("tokenizer.zh.md"))


@pytest.mark.parametrize("page", ["train.zh.md"])
def test_every_preset_has_its_line(page: str) -> None:
    presets = {p.stem for p in (ROOT / "components/yanmo/train/options/presets").glob("*.yaml")}
    text = page_called(page).read_text(encoding="utf-8")
    assert {name for name in presets if f"`{name}`" not in text} == set()
