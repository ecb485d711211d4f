"""Every command and option that a message, a help text or a page names is there.

The command line itself is asked what it takes (`yanmo COMMAND --help`), so that no list is kept here.
"""

from __future__ import annotations

import ast
import functools
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from user_pages import code_of

from yanmo.cli import COMMANDS
from yanmo.options.help import version
from yanmo_pipelines.stages import ON_NODES

ROOT = Path(__file__).parents[1]
SOURCES = sorted(
    path.relative_to(ROOT) for folder in ("components", "pipelines") for path in (ROOT / folder).rglob("*.py")
)
PAGES = sorted(
    path.relative_to(ROOT)
    for path in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("[im]*/*.md")]
    if path.name != "CHANGELOG.md"  # it tells of what was
)
HOLE = "\0"
"""What stands in an f-string where a value will."""
COMMAND = re.compile(r"(?<![\w/.-])yanmo ([a-z][\w-]*)((?: +(?!yanmo )[^\s`'\"|;)]+)*)")
OPTION = re.compile(r"(?<![\w-])--([a-z][a-z0-9_-]*[a-z0-9]|[a-z])(?![\w\0]|-[\w\0])")
STYLE = re.compile(r"var\(--|--\w+: ?(?:#|\w+\()")
SCRIPT = re.compile(r"\bpython (?:-m )?((?:benchmarks|tests)[\w./]*)([^`#|;&]*)")
TARGET = re.compile(r"(?:^|&& ?) *make ([a-z][a-z-]*)(?![\w=])")
FOREIGN = {
    *("always", "dirty", "abbrev", "query-gpu", "format"),  # git describe, nvidia-smi
    *("from", "from-literal", "from-file", "for", "local", "timeout"),  # kubectl
    *("dist", "build-arg", "network", "discount_fallback"),  # pytest-xdist, docker build, KenLM's lmplz
}
"""Options of programs that are not ours."""
OTHERS = (
    *("kubectl", "docker", "pip", "apt-get", "uv", "aws", "mc", "git", "stress-ng", "ray start"),
    ".venv/bin/python -m pytest",
)
"""How commands begin that are not ours."""
ASK = """
import contextlib, io, json, runpy, sys, warnings
warnings.simplefilter("ignore")  # runpy: a command that another one imported is run again
from yanmo.cli import COMMANDS
def answer(words):
    sys.argv, code = ["yanmo", *words[1:]], None
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
        try:
            runpy.run_module(COMMANDS[words[0]][0], run_name="__main__", alter_sys=True)
        except SystemExit as ended:
            code = ended.code
    return code, out.getvalue(), err.getvalue()
print(json.dumps([answer(words) for words in json.loads(sys.argv[1])]))
"""


def answers(lines: list[list[str]]) -> list[tuple[int, str, str]]:
    """Exit code, stdout and stderr of each of these command lines, all in one process."""
    command = [sys.executable, "-c", ASK, json.dumps(lines)]
    out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found: list[tuple[int, str, str]] = json.loads(out)
    return found


def asked(lines: list[list[str]]) -> list[str]:
    """What each of these command lines prints."""
    return [out for _, out, _ in answers(lines)]


@functools.cache
def helps() -> dict[tuple[str, str], str]:
    """(command, subcommand or "") -> its help."""
    pages = asked([[c, "--help", *words] for c in COMMANDS for words in ([], ["all"])])
    found = {(c, ""): "".join(pages[2 * i : 2 * i + 2]) for i, c in enumerate(COMMANDS)}
    pairs = [(c, sub) for c in COMMANDS for sub in subcommands_in(found[c, ""], c)]
    return found | dict(zip(pairs, asked([[*pair, "--help"] for pair in pairs]), strict=True))


def subcommands_in(shown: str, command: str) -> list[str]:
    listed = re.search(r"\nCommands .*\n((?:  .*\n)+)", shown)
    names = re.findall(r"^  ([a-z]+) ", listed[1], re.M) if listed else []
    return names or re.findall(rf"`yanmo {command} ([a-z]+)`", " ".join(shown.split()))


@functools.cache
def options(command: str, subcommand: str = "") -> frozenset[str]:
    """What a command takes, by the help that it prints."""
    shown = re.findall(r"--([a-z][\w-]*)", helps()[command, subcommand])
    return frozenset(shown) | {"help", "version", "config", "options"}


@functools.cache
def of_scripts() -> dict[str, frozenset[str]]:
    """Script or package of ours, as it is named after `python` or `python -m` -> its options."""
    paths = [*ROOT.glob("benchmarks/*.py"), *ROOT.glob("tests/**/__main__.py")]
    found = {}
    for path in paths:
        name = str(path.relative_to(ROOT).as_posix())
        taken = frozenset(re.findall(r"[\"']--([a-z][\w-]*)", path.read_text(encoding="utf-8")))
        found[name] = found[name.removesuffix("/__main__.py").replace("/", ".")] = taken
    return found


@functools.cache
def every_option() -> frozenset[str]:
    return frozenset(FOREIGN).union(*(options(*pair) for pair in helps()), *of_scripts().values())


def missing(text: str) -> Iterator[str]:
    """Commands and options in a text that nothing takes."""
    for name, rest in COMMAND.findall(text):
        if name not in COMMANDS:
            yield f"yanmo {name}"
            continue
        subs = [sub for command, sub in helps() if command == name and sub]
        first = re.match(r" +([a-z]+)(?![\w=])", rest)
        sub = first[1] if first and subs else ""
        if sub and sub not in subs:
            yield f"yanmo {name} {sub}"
        elif sub or not subs or name == "promote":
            taken = options(name, sub)
            yield from (f"yanmo {name} --{o}" for o in OPTION.findall(rest) if o not in taken)
    for name, rest in SCRIPT.findall(text):
        if name in of_scripts():
            yield from (
                f"{name} --{o}"
                for o in OPTION.findall(rest)
                if o not in of_scripts()[name] | options("train")
            )
    yield from (f"--{name}" for name in OPTION.findall(text) if name not in every_option())


def texts_of(path: Path) -> Iterator[str]:
    """The texts of a source file, docstrings and comments too, with a hole for each value."""
    source = (ROOT / path).read_text(encoding="utf-8")
    tree = ast.parse(source)
    inside = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else HOLE for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inside:
            text = node.value
        else:
            continue
        if not STYLE.search(text):
            yield " ".join(text.split())
    yield from re.findall(r"# .*--[a-z].*", source)


def test_every_command_answers_help_version_and_an_unknown_option_in_the_same_way() -> None:
    commands = [[word for word in pair if word] for pair in helps()]
    asks = ["--help", "--help=all", "-h", "--version", "--no-such-option"]
    found = answers([[*words, ask] for words in commands for ask in asks])
    assert len(commands) >= 30 and {out for _, out, _ in found[3::5]} == {version() + "\n"}
    for number, words in enumerate(commands):
        front, whole, short, _, unknown = found[5 * number : 5 * number + 5]
        name = " ".join(["yanmo", *words])
        assert [code for code, *_ in found[5 * number : 5 * number + 5]] == [0, 0, 0, 0, 64], name
        assert front == short and front[1].startswith(f"usage: {name} "), name
        assert len(whole[1]) >= len(front[1]) > 0 and "Exit codes: 0 done" in " ".join(front[1].split()), name
        is_group = (*words, "") in GROUPS
        expected = "COMMAND --no-such-option: expected" if is_group else "unknown option --no-such-option"
        said, *more = unknown[2].splitlines()  # a stage says that it failed, too
        assert unknown[1] == "" and len(more) == (not words[1:] and words[0] in STAGES), name
        assert expected in said and said.endswith(f"; see {name} --help"), name


STAGES = {stage.name for stage in ON_NODES}
GROUPS = {(group, "") for group in ("store", "cache", "documents", "tokenizer", "model", "schedule")}


def test_help_of_any_option_of_any_command_shows_that_option() -> None:
    pairs = [pair for pair in helps() if pair not in GROUPS]
    lines = sorted(
        {(pair, name) for pair in pairs for name in re.findall(r"^  --([a-z][\w-]*)", helps()[pair], re.M)}
    )
    shown = asked([[*(word for word in pair if word), "--help", name] for pair, name in lines])
    assert len(lines) > 400
    for (pair, name), page in zip(lines, shown, strict=True):
        assert re.search(rf"^  --{name}( |$)", page, re.M), (pair, name)


def test_what_a_source_file_names_is_there() -> None:
    named = ((path, name) for path in SOURCES for text in texts_of(path) for name in missing(text))
    assert sorted({f"{path}: {name}" for path, name in named}) == []


def test_what_a_page_names_is_there() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M))
    findings = set()
    for path in PAGES:
        for part in code_of(ROOT / path):
            findings |= {f"{path}: make {name}" for name in TARGET.findall(part) if name not in targets}
            if not part.startswith(OTHERS):
                findings |= {f"{path}: {name}" for name in missing(part)}
    assert sorted(findings) == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("run `yanmo evaluation-set` first", ["yanmo evaluation-set"]),
        ("run `yanmo store prune`", ["yanmo store prune"]),
        ("give --most-steps 3", ["--most-steps"]),
        ("yanmo train --quotas x", ["yanmo train --quotas"]),
        ("yanmo store gc --yes", ["yanmo store --yes"]),
        ("python benchmarks/gate.py --sources x", ["benchmarks/gate.py --sources"]),
        ("yanmo store gc --delete, or yanmo train --steps 3", []),
        (f"`yanmo {HOLE} --store x`; --{HOLE}", []),
    ],
)
def test_what_is_not_there_would_be_found(text: str, found: list[str]) -> None:
    assert list(missing(text)) == found


def test_nobody_is_told_to_install_a_package_of_our_name_from_the_index() -> None:
    """It is nobody's there: whoever registers it would get our users. From a checkout it is `.[extra]`."""
    from_index = re.compile(r"\byanmo\[|pip install (?:-U |--upgrade )?'?yanmo\b")
    scripts = [
        p.relative_to(ROOT) for folder in ("benchmarks", "install") for p in (ROOT / folder).rglob("*.py")
    ]
    found = [
        str(path) for path in [*SOURCES, *PAGES, *scripts] if from_index.search((ROOT / path).read_text())
    ]
    assert not found
