"""Every option, field, default and preset that a page for users names is one."""

from __future__ import annotations

import functools
import importlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from user_pages import ALL, ROOT, code_of, options_in, prose_and_code

from yanmo.options.fields import flag, option_fields
from yanmo.promote.history.options import HistoryOptions, RollbackOptions, SetOptions
from yanmo.tools.export.options import ExportOptions
from yanmo.tools.generate.options import GenerateOptions
from yanmo.tools.runs.command import RunsOptions
from yanmo_pipelines.cluster.doctor import DoctorOptions
from yanmo_pipelines.cluster.launch.reap import ReapOptions
from yanmo_pipelines.cluster.rerun import RerunOptions
from yanmo_pipelines.cluster.schedules.command import COMMANDS as SCHEDULE
from yanmo_pipelines.cluster.status.command import StatusOptions
from yanmo_pipelines.cluster.submit import SubmitOptions
from yanmo_pipelines.compile import CompileOptions
from yanmo_pipelines.launch_options import LaunchOptions
from yanmo_pipelines.run import PipelineRunOptions
from yanmo_pipelines.stages import LANGUAGE_MODEL


def flags_of(cls: type) -> set[str]:
    return {flag(f.name) for f in option_fields(cls)}


@functools.cache
def known() -> dict[str, set[str]]:
    """Command (`yanmo train`, `yanmo cache plan`) -> its options."""
    found = {f"yanmo {s.name}": {flag(f.name) for f in option_fields(s.config)} for s in LANGUAGE_MODEL}
    for group in ("store", "channel", "cache", "tokenizer", "model"):
        for name, sub in importlib.import_module(f"yanmo.tools.{group}.command").TOOL.subcommands.items():
            found[f"yanmo {group} {name}"] = flags_of(sub.options)
    commands: dict[str, type] = {
        "promote history": HistoryOptions,
        "promote rollback": RollbackOptions,
        "promote set": SetOptions,
        "runs": RunsOptions,
        "generate": GenerateOptions,
        "export": ExportOptions,
        "run": PipelineRunOptions,
        "compile": CompileOptions,
        "submit": SubmitOptions,
        "rerun": RerunOptions,
        "launch": LaunchOptions,
        "launch reap": ReapOptions,
        "status": StatusOptions,
        "doctor": DoctorOptions,
        **{f"schedule {name}": cls for name, cls in SCHEDULE.items()},
    }
    found |= {f"yanmo {name}": flags_of(cls) for name, cls in commands.items()}
    always = {"--help", "--version", "--config"}
    return {command: flags | always for command, flags in found.items()}


@functools.cache
def spelled_in_sources() -> set[str]:
    """Each text `--name` of our sources: options of tools, of benchmarks and of what they call."""
    files = [
        p for folder in ("components", "pipelines", "benchmarks", "tests") for p in (ROOT / folder).rglob("*")
    ]
    texts = (
        p.read_text(encoding="utf-8")
        for p in files
        if p.suffix in (".py", ".sh") and p.name != "test_documented_options.py"
    )
    return {name for text in texts for name in re.findall(r"(?<![\w-])--[a-z][a-z0-9-]+", text)}


FOREIGN = (
    "kubectl",
    "docker",
    "pip",
    "apt-get",
    "uv",
    "aws",
    "mc",
    "git",
    "stress-ng",
    ".venv/bin/python -m pytest",
)


def owner_of(code: str) -> str | None:
    """The command of ours that a line of code runs."""
    words = code.split("|")[0].split()
    names = (" ".join(words[:count]) for count in (3, 2))
    return next((name for name in names if name in known()), None)


def every_code() -> Iterator[tuple[Path, str]]:
    """Page and command, for every command of every page."""
    for page in ALL:
        yield from ((page, code) for code in code_of(page))


def test_every_option_that_a_page_names_is_one() -> None:
    anyones = spelled_in_sources().union(*known().values())
    unknown = set()
    for page, code in every_code():
        owner = owner_of(code)
        if not code.startswith(FOREIGN) and "-- " not in code:
            others = options_in(code) - (known()[owner] if owner else anyones)
            unknown |= {f"{page.name}: {owner}: {name}" for name in others}
    assert not unknown


def of_script(code: str) -> set[str] | None:
    """What the script that a command runs may be given."""
    script = re.match(r"python ((?:benchmarks|tests)/\S+\.py)", code)
    if not script:
        return None
    known_here = known()["yanmo train"] if "peak_of" in script[1] else set()
    return known_here | options_in((ROOT / script[1]).read_text(encoding="utf-8"))


def test_every_option_of_a_script_is_the_scripts_own() -> None:
    unknown = set()
    for page, code in every_code():
        own, given = of_script(code), options_in(code.partition(" -- ")[0])
        unknown |= {f"{page.name}: {code}: {name}" for name in given - own} if own is not None else set()
    assert not unknown


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
    assert ("--context", "64") in defaults_in(ROOT / "docs/packing.md")
    assert ("--character-share", "0.85") in defaults_in(ROOT / "docs/tokenizer.zh.md")


def test_an_option_that_is_none_would_be_found() -> None:
    assert owner_of("yanmo train --layers 8") == "yanmo train"
    assert owner_of("yanmo cache plan demo/tokenize") == "yanmo cache plan"
    assert options_in("yanmo train --layer 8") - known()["yanmo train"] == {"--layer"}


@pytest.mark.parametrize("page", ["train.zh.md"])
def test_every_preset_has_its_line(page: str) -> None:
    presets = {p.stem for p in (ROOT / "components/yanmo/train/options/presets").glob("*.yaml")}
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    assert {name for name in presets if f"`{name}`" not in text} == set()
