"""The user's pages say the same in English and Chinese, and what they name exists.

What a machine can compare: headings, commands, tables, figures, links. Whether the sentences agree, a reader
decides.
"""

from __future__ import annotations

import ast
import functools
import importlib
import re
import runpy
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from yanmo.common.errors import ExitCode
from yanmo.options.fields import flag, option_fields
from yanmo.promote.command import ApproveOptions, HistoryOptions, RejectOptions, RollbackOptions
from yanmo.stage.metric import declared
from yanmo.tools.runs.command import RunsOptions
from yanmo_pipelines.cluster.status.command import StatusOptions
from yanmo_pipelines.cluster.status.serving.metrics import METRICS as OF_STATUS
from yanmo_pipelines.compile import CompileOptions
from yanmo_pipelines.run import PipelineRunOptions
from yanmo_pipelines.stages import LANGUAGE_MODEL

ROOT = Path(__file__).parents[1]
FOLDERS = [ROOT / folder / "README.md" for folder in ("images", "manifests")]
PAGES = sorted(
    p
    for p in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *FOLDERS, *(ROOT / "docs").glob("*.md")]
    if not p.name.endswith(".zh.md")
)
ALL = [p for page in PAGES for p in (page, page.with_suffix(".zh.md"))]
NAMED = re.compile(
    r"(?<![\w/])(?:benchmarks|tests|components|pipelines|images|corpus)/[\w./-]*\w\.(?:py|sh|jsonl|md|json|zst)\b"
)
LINK = re.compile(r"\]\((?!https?:)([^)#\s]*)(?:#([^)\s]+))?\)")
UNITS = {"M": 1e6, "万": 1e4, "亿": 1e8}


def prose_and_code(page: Path) -> tuple[str, list[str]]:
    """The text of a page without its blocks of code, and the lines of these."""
    prose, code, fenced = [], [], False
    for line in page.read_text(encoding="utf-8").splitlines():
        if line.startswith("```"):
            fenced = not fenced
        elif fenced or line.startswith("    "):
            code.append(line.strip())
        else:
            prose.append(line)
    return "\n".join(prose), code


def headings(page: Path) -> list[str]:
    return re.findall(r"^(#+) ", prose_and_code(page)[0], re.M)


def commands(page: Path) -> set[str]:
    """Lines of code, and commands in the prose, without comments and what is in one's language."""
    prose, code = prose_and_code(page)
    inline = re.findall(r"`((?:yanmo|make|python|kubectl) [^`]+)`", prose.replace("\n", " "))
    plain = (re.sub(r"\s{2,}.*|\s#.*", "", c) for c in [*inline, *code])
    plain = (re.sub(r'"[^"]*"|\b[A-Z]{2,}\b|\([^)]*\)|（[^）]*）|[\u4e00-\u9fff]+', "X", c) for c in plain)
    return {c.rstrip("\\ ") for c in plain} - {""}


def tables(page: Path) -> list[list[int]]:
    """Columns of each row, table by table."""
    found: list[list[int]] = [[]]
    for line in prose_and_code(page)[0].splitlines():
        if line.startswith("|"):
            found[-1].append(len(re.findall(r"(?<!\\)\|", line)))
        elif found[-1]:
            found.append([])
    return [rows for rows in found if rows]


def links(page: Path) -> set[str]:
    """Where a page leads, without the language of the page there."""
    text = page.read_text(encoding="utf-8").replace("(" + twin(page).name + ")", "()")
    return {path.replace(".zh.", ".") for path in re.findall(r"\]\(([^)#\s]+)", text)}


def twin(page: Path) -> Path:
    """The same page in the other language."""
    name = page.name
    return page.with_name(name.replace(".zh.md", ".md") if ".zh." in name else name.replace(".md", ".zh.md"))


def figures(page: Path) -> tuple[set[float], set[float], set[float]]:
    """Decimals, numbers with a unit (4.3 M, 430 万), and whole numbers of the prose and its tables."""
    prose = re.sub(r"`[^`]*`|\]\([^)]*\)", " ", prose_and_code(page)[0])
    prose = re.sub(r"(?<=\d),(?=\d\d\d)", "", prose.replace("\n", " "))
    with_unit, plain, whole = set(), set(), set()
    for number, unit in re.findall(r"(?<![\w.-])(\d*\.?\d+)(?![\w.]*\d)(?: ?(M(?=\b)|万|亿))?", prose):
        if unit:
            with_unit.add(round(float(number) * UNITS[unit]))
        elif "." in number:
            plain.add(float(number))
        else:
            whole.add(float(number))
    return plain, with_unit, whole


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_both_languages_have_the_same_headings_commands_and_figures(page: Path) -> None:
    other = page.with_suffix(".zh.md")
    assert other.is_file(), "a page for users needs its Chinese twin"
    assert headings(page) == headings(other)
    assert commands(page) == commands(other)
    assert tables(page) == tables(other)
    assert links(page) == links(other)
    (plain, scaled, whole), (plain_zh, scaled_zh, whole_zh) = figures(page), figures(other)
    assert plain == plain_zh
    large, large_zh = ({n for n in of if n >= 10} for of in (scaled | whole, scaled_zh | whole_zh))
    assert large == large_zh  # smaller ones may be words


def anchors(page: Path) -> set[str]:
    """Of a page's headings, as GitHub makes them."""
    titles = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.M)
    plain = (re.sub(r"[`*]|\]\([^)]*\)|\[", "", title).lower() for title in titles)
    return {re.sub(r"[^\w\- ]", "", title).replace(" ", "-") for title in plain}


EVERY = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), ROOT / "images/README.md"])


@pytest.mark.parametrize("page", EVERY, ids=lambda p: str(p.relative_to(ROOT)))
def test_every_file_and_page_that_a_page_names_is_there(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    missing = {name for name in NAMED.findall(text) if not (ROOT / name).exists()}
    if page.name == "CHANGELOG.md":
        missing = set()  # it tells of what was
    for name, anchor in LINK.findall(text):
        target = (page.parent / name).resolve() if name else page
        if not target.exists():
            missing.add(name)
        elif anchor and target.suffix == ".md" and anchor not in anchors(target):
            missing.add(f"{name}#{anchor}")
    assert not missing


def test_a_page_that_is_not_there_would_be_found() -> None:
    assert LINK.findall("[a](b.md#c) [d](https://e) [f](#g)") == [("b.md", "c"), ("", "g")]
    assert NAMED.findall("`python benchmarks/none.py --x`") == ["benchmarks/none.py"]


@pytest.mark.parametrize("page", [p for p in ALL if p.name.endswith(".zh.md")], ids=lambda p: p.name)
def test_a_chinese_page_leads_to_chinese_pages(page: Path) -> None:
    text = page.read_text(encoding="utf-8").replace(f"({page.name.replace('.zh.md', '.md')})", "()")
    led = {path for path in re.findall(r"\]\(([^)#\s]+\.md)", text) if not path.endswith(".zh.md")}
    missed = [p for p in led if (page.parent / p).with_suffix(".zh.md").exists()]
    assert not missed


def width(line: str) -> int:
    """Columns of a terminal."""
    return sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in line)


@pytest.mark.parametrize("page", ALL, ids=lambda p: p.name)
def test_prose_is_wrapped_at_100_columns(page: Path) -> None:
    lines = prose_and_code(page)[0].splitlines()
    loose = (line for line in lines if not line.startswith(("|", "#", "!", "[!")))
    whole = re.compile(r"[-\d. ]*(`[^`]+`)?\S*")  # a command or an address is not torn apart
    assert [line for line in loose if width(line) > 100 and not whole.fullmatch(line)] == []


def flags_of(cls: type) -> set[str]:
    return {flag(f.name) for f in option_fields(cls)}


@functools.cache
def known() -> dict[str, set[str]]:
    """Command (`yanmo train`, `yanmo cache plan`) -> its options."""
    found = {f"yanmo {s.name}": {flag(f.name) for f in option_fields(s.config)} for s in LANGUAGE_MODEL}
    for group in ("store", "channel", "cache", "tokenizer", "model", "nights"):
        for name, sub in importlib.import_module(f"yanmo.tools.{group}.command").TOOL.subcommands.items():
            found[f"yanmo {group} {name}"] = flags_of(sub.options)
    for name, cls in (
        ("history", HistoryOptions),
        ("rollback", RollbackOptions),
        ("approve", ApproveOptions),
        ("reject", RejectOptions),
    ):
        found[f"yanmo promote {name}"] = flags_of(cls)
    found |= {"yanmo runs": flags_of(RunsOptions), "yanmo status": flags_of(StatusOptions)}
    found |= {"yanmo run": flags_of(PipelineRunOptions), "yanmo compile": flags_of(CompileOptions)}
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
        if p.suffix in (".py", ".sh") and p.name != "test_docs.py"
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


def code_of(page: Path) -> Iterator[str]:
    """Commands: spans of code, and blocks with their continued lines joined; without what is docker's."""
    prose, code = prose_and_code(page)
    dockers = re.compile(r'BUILD="[^"]*"')
    yield from re.findall(r"`([^`]+)`", dockers.sub("", prose.replace("\n", " ")))
    lines = "\n".join(re.sub(r"\s#\s.*|^\$ ", "", line) for line in code).replace("\\\n", " ")
    yield from dockers.sub("", lines).splitlines()


def options_in(code: str) -> set[str]:
    return set(re.findall(r"(?<![\w-])--[a-z][a-z0-9-]+", code))


def owner_of(code: str) -> str | None:
    """The command of ours that a line of code runs."""
    words = code.split("|")[0].split()
    names = (" ".join(words[:count]) for count in (3, 2))
    return next((name for name in names if name in known()), None)


@pytest.mark.parametrize("page", ALL, ids=lambda p: p.name)
def test_every_option_that_a_page_names_is_one(page: Path) -> None:
    anyones = spelled_in_sources().union(*known().values())
    unknown = set()
    for code in code_of(page):
        owner = owner_of(code)
        if not code.startswith(FOREIGN) and "-- " not in code:
            unknown |= {
                f"{owner}: {name}" for name in options_in(code) - (known()[owner] if owner else anyones)
            }
    assert not unknown


def of_script(code: str) -> set[str] | None:
    """What the script that a command runs may be given."""
    script = re.match(r"python ((?:benchmarks|tests)/\S+\.py)", code)
    if not script:
        return None
    known_here = known()["yanmo train"] if "peak_of" in script[1] else set()
    return known_here | options_in((ROOT / script[1]).read_text(encoding="utf-8"))


@pytest.mark.parametrize("page", ALL, ids=lambda p: p.name)
def test_every_option_of_a_script_is_the_scripts_own(page: Path) -> None:
    unknown = set()
    for code in code_of(page):
        own, given = of_script(code), options_in(code.partition(" -- ")[0])
        unknown |= {f"{code}: {name}" for name in given - own} if own is not None else set()
    assert not unknown


@pytest.mark.parametrize("page", ALL, ids=lambda p: p.name)
def test_every_field_of_the_run_form_that_a_page_sets_is_there(page: Path) -> None:
    compiled = (ROOT / "pipelines/compiled/language_model.yaml").read_text(encoding="utf-8")
    form = set(re.findall(r"^#    (\w+): ", compiled, re.M))
    ours = [code for code in code_of(page) if "yanmo run" in code or code.startswith("make")]
    named = {name for code in ours for name in re.findall(r"(?:--set[ =]\"?|SET=\"|\s)(\w+_\w+)=", code)}
    assert "train_steps" in form and named <= form


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


@pytest.mark.parametrize("page", ALL, ids=lambda p: p.name)
def test_defaults_in_tables_are_those_of_the_code(page: Path) -> None:
    every: dict[str, set[str]] = {}
    for stage in LANGUAGE_MODEL:
        for field in option_fields(stage.config):
            value = str(field.default).lower() if isinstance(field.default, bool) else str(field.default)
            every.setdefault(flag(field.name), set()).add(value)
    assert [(name, value) for name, value in defaults_in(page) if value not in every.get(name, {value})] == []


def test_defaults_are_found_in_tables() -> None:
    assert ("--context", "64") in defaults_in(ROOT / "docs/packing.md")
    assert ("--character-share", "0.85") in defaults_in(ROOT / "docs/tokenizer.zh.md")


def test_an_option_that_is_none_would_be_found() -> None:
    assert owner_of("yanmo train --layers 8") == "yanmo train"
    assert owner_of("yanmo cache plan demo/tokenize") == "yanmo cache plan"
    assert options_in("yanmo train --layer 8") - known()["yanmo train"] == {"--layer"}


@functools.cache
def metrics_made() -> set[str]:
    """Every name on /metrics of any stage."""
    of_stages = {name for stage in LANGUAGE_MODEL for name, _ in declared(stage.name, stage.metrics)}
    return of_stages | {metric.family("status") for metric in OF_STATUS}


@pytest.mark.parametrize("page", ALL, ids=lambda p: p.name)
def test_every_metric_that_a_page_names_is_made(page: Path) -> None:
    rooms = "|".join([*(stage.name for stage in LANGUAGE_MODEL), "run", "stage", "store", "gpu"])
    text = page.read_text(encoding="utf-8").replace("<stage>", "train")
    named = set(re.findall(rf"\byanmo_(?:{rooms})_[a-z_0-9]+", text))
    assert named - metrics_made() == set()


@pytest.mark.parametrize(("page", "language"), [("metrics.md", "en"), ("metrics.zh.md", "zh")])
def test_the_page_of_metrics_is_what_the_stages_declare(page: str, language: str) -> None:
    written = runpy.run_path(str(ROOT / "docs/metrics.py"))["page"](language)
    said = "docs/metrics.py has another page: run python docs/metrics.py"
    assert (ROOT / "docs" / page).read_text(encoding="utf-8") == written, said


SETTING = {"set", "add", "gone", "_set", "value", "show_only"}
SERVING = ROOT / "pipelines/yanmo_pipelines/cluster/status/serving"


def test_every_declared_metric_is_set_somewhere_and_nothing_else_is() -> None:
    """By the names in calls; those that come from a table are texts of the same module."""
    texts, called = set[str](), dict[str, str]()
    for path in (*(ROOT / "components/yanmo").rglob("*.py"), *SERVING.glob("*.py")):
        if path.name in ("metrics.py", "declared.py", "metric.py"):
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
    names |= {metric.name for metric in OF_STATUS}
    assert names - texts == set(), "declared, and set nowhere"
    assert {name: where for name, where in called.items() if name not in names} == {}
    assert len(called) > 20


@pytest.mark.parametrize("page", ["stages.md", "stages.zh.md"])
def test_the_exit_codes_are_those_of_the_code(page: str) -> None:
    rows = re.findall(r"^\| (\d+) \|", (ROOT / "docs" / page).read_text(encoding="utf-8"), re.M)
    assert {int(code) for code in rows} == {*map(int, ExitCode), 128 + 15}


@pytest.mark.parametrize("page", ["train.zh.md"])
def test_every_preset_has_its_line(page: str) -> None:
    presets = {p.stem for p in (ROOT / "components/yanmo/train/options/presets").glob("*.yaml")}
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    assert {name for name in presets if f"`{name}`" not in text} == set()


def house() -> dict[str, Any]:
    return runpy.run_path(str(ROOT / "docs/images/house.py"))


def test_the_picture_of_the_house_is_the_one_that_its_command_draws() -> None:
    assert (ROOT / "docs/images/house.svg").read_text(encoding="utf-8") == house()["picture"]()


def test_rooms_and_arrows_of_the_picture_are_those_of_the_code() -> None:
    rules = runpy.run_path(str(ROOT / "tests/test_import_rules.py"))
    may_import, rooms = rules["MAY_IMPORT"], house()["ROOMS"]
    names = {key: set(room.names.split(" · ")) for key, room in rooms.items()}
    assert set().union(*names.values()) == {*may_import, "yanmo_pipelines"}
    for above, below in house()["ARROWS"]:
        assert rooms[above].floor < rooms[below].floor
        if above != "pipelines":
            assert any(may_import[name] & names[below] for name in names[above])


@pytest.mark.parametrize("page", ["architecture.md", "architecture.zh.md"])
def test_every_path_of_the_architecture_is_there(page: str) -> None:
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    paths = {p for p in re.findall(r"`([\w./]+)`", text) if "/" in p or p.endswith((".py", ".toml"))}
    near = ("", "components/yanmo/", "components/yanmo/train/")
    assert len(paths) > 20
    assert {
        p for p in paths - {"config.py", "__main__.py"} if not any((ROOT / n / p).exists() for n in near)
    } == set()
