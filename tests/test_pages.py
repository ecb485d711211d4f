"""The pages for users: both languages agree, what they lead to is there, and figures are those of the code.

A rule goes over a page and yields what is wrong on it. Commands and options: test_named_commands.py; figures
that were measured: test_measurements.py. Whether the sentences of both languages agree, a reader decides.
"""

from __future__ import annotations

import ast
import dataclasses
import re
import runpy
import shlex
import subprocess
import unicodedata
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest
from user_pages import ALL, PAGES, ROOT, code_of, page_called, prose_and_code

from yanmo.balance.config import STAGE as BALANCE
from yanmo.common.errors import ExitCode
from yanmo.curate.config import STAGE as CURATE
from yanmo.evaluate.config import STAGE as EVALUATE
from yanmo.evaluate.verse.verse_rules import RULES as VERSE_RULES
from yanmo.formats.token_cache import INDEX
from yanmo.options.command_line import load
from yanmo.options.fields import flag, names_of, option_fields
from yanmo.promote.gate.limits import LIMIT_METRICS
from yanmo.stage.shared_metrics import declared
from yanmo.tools.generate.options import GenerateOptions
from yanmo.train.config import STAGE as TRAIN
from yanmo.train.config import TrainConfig
from yanmo.train.memory.estimate import check, largest_that_fits
from yanmo.train.options.recipe_options import SIZES
from yanmo_pipelines.compile import COMPILED
from yanmo_pipelines.parameters import form_of
from yanmo_pipelines.resources import COLUMNS
from yanmo_pipelines.stages import LANGUAGE_MODEL

EVERY = sorted({*ALL, *ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), ROOT / "benchmarks/NOTES.md"})
UNITS = {"M": 1e6, "万": 1e4, "亿": 1e8}
Rule = Callable[[Path], Iterator[object]]


def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def lines_of(page: Path) -> list[str]:
    return prose_and_code(page)[0].splitlines()


# Both languages


def headings(page: Path) -> list[str]:
    return re.findall(r"^(#+) ", prose_and_code(page)[0], re.M)


def commands(page: Path) -> set[str]:
    """Lines of code, and commands in the prose, without comments and what is in one's language."""
    prose, code = prose_and_code(page)
    inline = re.findall(r"`((?:yanmo|make|python|kubectl) [^`]+)`", prose.replace("\n", " "))
    plain = (re.sub(r"\s{2,}.*|\s#.*", "", c) for c in [*inline, *code])
    plain = (re.sub(r'"[^"]*"|\b[A-Z]{2,}\b|\([^)]*\)|（[^）]*）|[\u4e00-\u9fff]+', "X", c) for c in plain)
    return {c.rstrip("\\ ") for c in plain} - {""}


def tables_of(page: Path) -> list[list[list[str]]]:
    """The cells of each table, row by row; its head is the first."""
    found: list[list[list[str]]] = [[]]
    for line in lines_of(page):
        if not line.startswith("|"):
            found.append([])
        elif set(line) - set("|-: "):
            found[-1].append([cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]])
    return [rows for rows in found if rows]


def tables(page: Path) -> list[list[int]]:
    """Columns of each row of each table."""
    return [[len(row) for row in rows] for rows in tables_of(page)]


def links(page: Path) -> set[str]:
    """Where a page leads, without the language of the page there."""
    own = {page.name, page.name.replace(".zh.", "."), page.with_suffix(".zh.md").name}
    return {
        path.replace(".zh.", ".") for path in re.findall(r"\]\(([^)#\s]+)", text_of(page)) if path not in own
    }


def figures(page: Path) -> tuple[set[float], set[float]]:
    """Decimals; and whole numbers from 10 on, also with a unit (430 万): smaller ones may be words."""
    prose = re.sub(r"`[^`]*`|\]\([^)]*\)", " ", prose_and_code(page)[0])
    prose = re.sub(r"(?<=\d),(?=\d\d\d)", "", prose.replace("\n", " "))
    decimals, whole = set(), set()
    number_and_unit = r"(?<![\w.-])(\d*\.?\d+)(?![\w.]*\d)(?: ?(M(?=\b)|万|亿))?"
    for number, unit in re.findall(number_and_unit, prose, re.ASCII):  # also right behind a Chinese character
        value = float(number) * UNITS.get(unit, 1)
        (decimals if "." in number and not unit else whole).add(value if not unit else round(value))
    return decimals, {n for n in whole if n >= 10}


def languages_agree(page: Path) -> Iterator[object]:
    if page not in PAGES:
        return
    other = page.with_suffix(".zh.md")
    if not other.is_file():
        yield "a page for users needs its Chinese twin"
        return
    for of in (headings, commands, tables, links, figures):
        one, two = of(page), of(other)
        if one != two:
            pairs = zip(one, two, strict=True) if isinstance(one, tuple) else [(one, two)]
            yield of.__name__, [a ^ b if isinstance(a, set) else (a, b) for a, b in pairs]


def chinese_leads_to_chinese(page: Path) -> Iterator[object]:
    for path in re.findall(r"\]\(([^)#\s]+\.md)", text_of(page)) if page.name.endswith(".zh.md") else ():
        is_english = not path.endswith(".zh.md") and path != page.name.replace(".zh.", ".")
        if is_english and (page.parent / path).with_suffix(".zh.md").exists():
            yield path


def prose_is_wrapped_at_100_columns(page: Path) -> Iterator[object]:
    whole = re.compile(r"[-\d. ]*(`[^`]+`)?[!-~，。；]*")  # a command or an address is not torn apart
    for line in lines_of(page) if page in ALL else ():
        width = sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in line)
        if width > 100 and not line.startswith(("|", "#", "!", "[!")) and not whole.fullmatch(line):
            yield line


# What is named


NAMED = re.compile(
    r"(?<![\w/:])(?:benchmarks|tests|components|pipelines|images|corpus)/[\w./-]*\w\.(?:py|sh|jsonl|md|json|zst)\b"
)
LINK = re.compile(r"\]\((?!https?:)([^)#\s]*)(?:#([^)\s]+))?\)")


@cache
def anchors(page: Path) -> set[str]:
    """Of a page's headings, as GitHub makes them."""
    titles = re.findall(r"^#+ (.+)$", text_of(page), re.M)
    plain = (re.sub(r"[`*]|\]\([^)]*\)|\[", "", title).lower() for title in titles)
    return {re.sub(r"[^\w\- ]", "", title).replace(" ", "-") for title in plain}


def files_pages_and_headings_are_there(page: Path) -> Iterator[object]:
    is_history = page.name.startswith("CHANGELOG")  # it tells of what was
    yield from (
        name for name in NAMED.findall(text_of(page)) if not is_history and not (ROOT / name).exists()
    )
    for name, anchor in LINK.findall(text_of(page)):
        target = (page.parent / name).resolve() if name else page
        if not target.exists() or (anchor and target.suffix == ".md" and anchor not in anchors(target)):
            yield f"{name}#{anchor}"


@cache
def has_history() -> bool:
    git = ["git", "cat-file", "-e", "97f1f520^{commit}"]
    return subprocess.run(git, cwd=ROOT, capture_output=True).returncode == 0


def former_files_are_in_their_commits(page: Path) -> Iterator[object]:
    for name in re.findall(r"`git show ([0-9a-f]+:[\w./]+)`", text_of(page)) if has_history() else ():
        if subprocess.run(["git", "cat-file", "-e", name], cwd=ROOT, capture_output=True).returncode:
            yield name


@cache
def metrics_made() -> set[str]:
    """Every name on /metrics of any stage."""
    return {name for stage in LANGUAGE_MODEL for name, _ in declared(stage.name, stage.metrics)}


def metrics_are_made(page: Path) -> Iterator[object]:
    rooms = "|".join(sorted({name.split("_")[1] for name in metrics_made()}))
    named = re.findall(rf"\byanmo_(?:{rooms})_[a-z_0-9]+", text_of(page).replace("<stage>", "train"))
    yield from (name for name in named if page in ALL and name not in metrics_made())


@cache
def form_fields() -> dict[str, dict[str, str]]:
    return form_of(COMPILED / "language_model.yaml")


def fields_of_the_form_are_there(page: Path) -> Iterator[object]:
    field = re.compile(r"(?:--set[ =]\"?|SET=\"|\s)(\w+_\w+)=")
    for code in code_of(page) if page in ALL else ():
        if "yanmo run" in code or code.startswith("make"):
            yield from (name for name in field.findall(code) if name not in form_fields())


@cache
def defaults() -> set[tuple[str, str]]:
    """Option and default of every stage."""
    return {
        (
            flag(field.name),
            str(field.default).lower() if isinstance(field.default, bool) else str(field.default),
        )
        for stage in LANGUAGE_MODEL
        for field in option_fields(stage.config)
    }


def defaults_are_those_of_the_code(page: Path) -> Iterator[object]:
    known = {name for name, _ in defaults()}
    for head, *rows in tables_of(page):
        for row in rows if head[1:2] in (["default"], ["默认"]) else ():
            option, value = row[0].strip("` "), row[1].strip("` ").replace(",", "")
            if option in known and (option, value) not in defaults():
                yield option, value


RULES: tuple[Rule, ...] = (
    languages_agree,
    chinese_leads_to_chinese,
    prose_is_wrapped_at_100_columns,
    files_pages_and_headings_are_there,
    former_files_are_in_their_commits,
    metrics_are_made,
    fields_of_the_form_are_there,
    defaults_are_those_of_the_code,
)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_no_page_is_against_the_rule(rule: Rule) -> None:
    found = {str(page.relative_to(ROOT)): list(rule(page)) for page in EVERY}
    assert {page: wrong for page, wrong in found.items() if wrong} == {}


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        (files_pages_and_headings_are_there, "[a](b.md#c)"),
        (files_pages_and_headings_are_there, "`python benchmarks/none.py --x`"),
        (metrics_are_made, "`yanmo_train_no_such_metric`"),
        (fields_of_the_form_are_there, "    yanmo run --set no_such=3"),
        (defaults_are_those_of_the_code, "| option | default |\n|---|---|\n| `--context` | 3 |"),
        (prose_is_wrapped_at_100_columns, "a word " * 20),
        (languages_agree, "only here: 1234"),
    ],
)
def test_what_is_wrong_would_be_found(
    rule: Rule, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = tmp_path / "page.md"
    page.write_text(text, encoding="utf-8")
    page.with_suffix(".zh.md").write_text("# 没有", encoding="utf-8")
    for known in (ALL, PAGES):
        monkeypatch.setattr(f"{__name__}.{'ALL' if known is ALL else 'PAGES'}", [*known, page])
    assert list(rule(page))


# Tables that the code knows too


def table(page: str, *beginnings: str) -> Iterator[list[str]]:
    """The rows below a head that begins with one of these cells, in either language."""
    for head, *rows in tables_of(page_called(page)):
        yield from rows if head[0] in beginnings else ()


def names(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


both = pytest.mark.parametrize("end", [".md", ".zh.md"])


@both
def test_the_form_has_these_fields_with_these_defaults(end: str) -> None:
    rows = list(table(f"run-form{end}", "field", "字段"))
    shown = {name: names(row[1]) for row in rows for name in names(row[0])}
    form = form_fields()
    assert shown.keys() == form.keys()
    by_column = {name for name in form if name.startswith("training_pod_")}
    said = {name: field.get("defaultValue", "") for name, field in form.items() if name not in by_column}
    wanted = {name: f"{value:g}" if isinstance(value, float) else value for name, value in said.items()}
    assert {name: "".join(shown[name]) for name in wanted} == wanted


@both
def test_pods_have_these_resources(end: str) -> None:
    of_names = re.compile(r"`[^`]+`([,、] ?`[^`]+`)*")
    rows = [row for row in table(f"run-form{end}", "") if of_names.fullmatch(row[0])]
    shown = {name: row[1:] for row in rows for name in names(row[0])}
    stages = shown.keys() & COLUMNS["small"].keys()
    assert stages == COLUMNS["small"].keys()
    for stage in stages:
        pods = [COLUMNS[column][stage] for column in ("small", "standard", "gpu")]
        assert shown[stage] == [f"{p.cpu}, {p.memory}" + f", {p.gpus} GPU" * (p.gpus > "0") for p in pods]


@both
def test_sizes_have_these_shapes(end: str) -> None:
    rows = {names(row[0])[0]: row[1:] for row in table(f"train{end}", "`--size`")}
    assert rows.keys() == SIZES.keys()
    for size, (parameters, *shape) in rows.items():
        options = load(TrainConfig, ["--size", size, "--store", "here"], "yanmo train")
        number, unit = re.findall(r"([\d.,]+) ?(\S)", parameters)[0]
        assert abs(float(number.replace(",", "")) * UNITS[unit] - options.num_parameters(8192)) < 50_000
        wanted = [options.layers, options.width, options.heads, options.kv_heads, options.head_width]
        wanted += [options.feed_forward, options.context, options.batch_rows]
        assert [int(n) for n in re.findall(r"\d+", " ".join(shape).replace(",", ""))] == wanted


@both
def test_columns_metrics_of_limits_rules_of_verse_and_exit_codes_are_all_there(end: str) -> None:
    files = {names(row[0])[0]: names(row[1]) for row in table(f"stages{end}", "file", "文件")}
    assert files["documents-00000-of-00002.parquet"] == INDEX.names
    limits = [name for row in table(f"promote{end}", "metric", "指标") for name in names(row[0])]
    assert sorted(limits) == sorted(LIMIT_METRICS)
    verse = [names(row[0])[0] for row in table(f"evaluate{end}", "rule", "规则")]
    assert verse == [rule.name for rule in VERSE_RULES]
    codes = re.findall(r"^\| (\d+) \|", text_of(page_called(f"stages{end}")), re.M)
    assert {int(code) for code in codes} == {*map(int, ExitCode), 128 + 15}


@pytest.mark.parametrize(("end", "language"), [(".md", "en"), (".zh.md", "zh")])
def test_the_page_of_metrics_is_what_the_stages_declare(end: str, language: str) -> None:
    text = text_of(page_called(f"metrics{end}"))
    filled = runpy.run_path(str(ROOT / "docs/metrics.py"))["filled"]
    assert text == filled(text, language), "run python docs/metrics.py"


def test_every_declared_metric_is_set_somewhere_and_nothing_else_is() -> None:
    """By the names in calls; those that come from a table are texts of the same module."""
    texts, called = set[str](), set[str]()
    for path in (ROOT / "components/yanmo").rglob("*.py"):
        if path.name in ("metrics.py", "declared.py", "shared_metrics.py"):
            continue
        for node in ast.walk(ast.parse(text_of(path))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                texts.add(node.value)
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
                is_ours = ast.unparse(node.func.value).endswith(("telemetry", "measured"))
                sets = is_ours and node.func.attr in ("set", "add", "gone", "_set", "value")
                if sets and isinstance(node.args[0], ast.Constant):
                    called.add(node.args[0].value)
    names = {m.name for stage in LANGUAGE_MODEL for _, m in declared(stage.name, stage.metrics)}
    assert names - texts == set() == called - names and len(called) > 20


def test_every_preset_has_its_line() -> None:
    presets = {p.stem for p in (ROOT / "components/yanmo/train/options/presets").glob("*.yaml")}
    assert not {name for name in presets if f"`{name}`" not in text_of(page_called("train.zh.md"))}


@both
def test_names_of_other_guides_are_none_of_ours_and_lead_to_options_that_there_are(end: str) -> None:
    configs = [stage.config for stage in (TRAIN, CURATE, BALANCE, EVALUATE)]
    ours = {option for config in (*configs, GenerateOptions) for option in names_of(config)}
    guides = re.findall(
        r"^\| ((?:`[a-z0-9_]+`(?:, )?)+) \| (.*) \|$", text_of(page_called(f"settings{end}")), re.M
    )
    assert len(guides) > 20
    for theirs, here in guides:
        assert not set(names(theirs)) & ours, theirs
        named = {option.replace("-", "_") for option in re.findall(r"--([a-z][a-z0-9-]*)", here)}
        assert named <= ours and (named or "resume" in theirs), here


HARDWARE = re.findall(r"\| `(yanmo train [^`]+)` \|", text_of(page_called("settings.md")))


@pytest.mark.parametrize("command", HARDWARE)
def test_each_command_by_hardware_is_whole_and_what_it_trains_fits_by_the_estimate(command: str) -> None:
    options = load(TrainConfig, shlex.split(command)[2:], "yanmo train")
    assert options.epochs and options.warmup_share and len(HARDWARE) == 6
    if options.device == "cuda":
        rows = largest_that_fits(options, 8192, "cuda")
        check(dataclasses.replace(options, micro_batch=rows), 8192, "cuda")  # raises where it does not fit
        assert options.rank_rows % rows == 0


# The architecture


@both
def test_every_path_of_the_architecture_is_there_and_every_room_is_in_its_picture(end: str) -> None:
    text = text_of(page_called(f"architecture{end}"))
    paths = {p for p in re.findall(r"`([\w./]+)`", text) if "/" in p or p.endswith((".py", ".toml"))}
    near = ("", "components/yanmo/")
    missing = {p for p in paths if not any((ROOT / n / p).exists() for n in near)}
    assert len(paths) > 20 and missing <= {"config.py", "__main__.py", "metrics.py"}
    rooms = runpy.run_path(str(ROOT / "tests/test_import_rules.py"))["MAY_IMPORT"]
    picture = (ROOT / "docs/images/house.svg").read_text(encoding="utf-8")
    drawn = runpy.run_path(str(ROOT / "docs/images/house.py"))["picture"]()
    assert picture == drawn, "run python docs/images/house.py"
    assert [room for room in rooms if not re.search(rf"\b{room}\b", picture)] == []
