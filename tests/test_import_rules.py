"""Which part may import what; this is what keeps stages apart and every image small.

Imports are read from the syntax trees, also those inside functions, and followed through Yanmo's own
modules: a data stage that reaches torch by way of `yanmo.model` is found as well.
"""

from __future__ import annotations

import ast
import functools
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Mapping
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE_ROOTS = (ROOT / "components", ROOT / "pipelines")
STAGES = sorted(p.parent.name for p in (ROOT / "components/yanmo").glob("*/config.py"))
TRAINING = {"torch", "deepspeed", "transformers", "safetensors"}
DATA = {"jieba", "opencc", "pkg_resources"}
CLUSTER = {"kfp", "kubernetes", "yanmo_pipelines"}

GROUND = {"common", "options", "store", "chinese", "formats", "stage"}
MAY_IMPORT: dict[str, set[str]] = {
    "common": set(),
    "options": {"common"},
    "store": {"common"},
    "chinese": {"common"},
    "model": {"common"},
    "verse": {"chinese"},
    "engine": {"common", "store"},
    "formats": {"common", "store"},
    "nights": {"common", "options", "store"},
    "stage": {"common", "options", "store"},
    "resolve": GROUND - {"chinese", "formats"} | {"nights"},
    "curate": GROUND | {"engine", "nights"},
    "balance": GROUND | {"engine", "nights"},
    "tokenize": GROUND - {"chinese"} | {"engine", "nights"},
    "train": GROUND - {"chinese"} | {"model", "nights"},
    "evaluate": GROUND | {"model", "nights", "verse"},
    "promote": GROUND - {"chinese"} | {"nights"},
    # `tools tokenizer` builds vocabularies with the stage's own code, `tools documents` cleans a document
    # with curate's.
    "tools": GROUND - {"chinese", "stage"} | {"model", "nights", "tokenize", "curate", "verse"},
    "cli": {"common", "options"},
}
"""Room below `yanmo` -> the rooms that it may import: docs/explanation/architecture.md, floor by floor."""

FORBIDDEN: dict[str, set[str]] = {
    **{f"yanmo.{room}": {*TRAINING, *DATA, *CLUSTER} for room in GROUND - {"chinese"} | {"engine", "nights"}},
    "yanmo.chinese": {*TRAINING, *CLUSTER},
    "yanmo.model": {*DATA, *CLUSTER},
    "yanmo.verse": {*DATA, *CLUSTER},
    **{f"yanmo.{stage}": {*CLUSTER, *DATA} for stage in ("train", "evaluate", "promote", "resolve")},
    **{f"yanmo.{stage}": {*CLUSTER, *TRAINING} for stage in ("curate", "balance", "tokenize")},
    "yanmo.tools.store": {*TRAINING, *DATA, *CLUSTER, "yanmo.model", "yanmo.tokenize"},
    "yanmo.tools.runs": {*TRAINING, *DATA, *CLUSTER, "yanmo.model", "yanmo.tokenize"},
    "yanmo.tools.cache": {*TRAINING, *DATA, *CLUSTER, "yanmo.model", "yanmo.tokenize"},
    "yanmo.tools.documents": {*TRAINING, *CLUSTER},
    "yanmo.tools.tokenizer": {*TRAINING, *CLUSTER},
    "yanmo.tools.model": {*DATA, *CLUSTER},
    "yanmo.tools.generate": {*DATA, *CLUSTER},
    "yanmo.tools.export": {*DATA, *CLUSTER},
    "yanmo_pipelines": {*TRAINING, *DATA},
}
"""What a part must not reach, by whatever way: this keeps every image small."""


def modules_of(roots: Iterable[Path]) -> dict[str, Path]:
    """Every module below the source roots: dotted name -> file."""
    found = {}
    for root in roots:
        for path in sorted(root.rglob("*.py")):
            parts = path.relative_to(root).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


MODULES = modules_of(SOURCE_ROOTS)


@functools.cache
def imports_of(source: str) -> frozenset[str]:
    """The names that a module imports, with `from a import b` as `a.b`; relative ones begin with a dot."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = "." * node.level + (node.module or "")
            names |= {f"{base}.{alias.name}" for alias in node.names}
    return frozenset(names)


def is_below(name: str, package: str) -> bool:
    return name == package or name.startswith(package + ".")


def as_module(name: str, modules: dict[str, Path]) -> str | None:
    """The module of ours that importing `name` runs; a name that is no module is its attribute."""
    while name:
        if name in modules:
            return name
        name = name.rpartition(".")[0]
    return None


def wrong_imports(package: str, forbidden: set[str], modules: dict[str, Path]) -> list[str]:
    """Each chain of imports from `package` to something forbidden, in words."""
    chains = {m: m for m in modules if is_below(m, package)}
    queue, wrong = list(chains), []
    while queue:
        module = queue.pop()
        for name in sorted(imports_of(modules[module].read_text(encoding="utf-8"))):
            bad = next((f for f in forbidden if is_below(name, f)), None)
            if bad:
                wrong.append(f"{chains[module]} -> {name}; {package} must not import {bad}")
                continue
            ours = as_module(name, modules)
            if ours and ours not in chains:
                chains[ours] = f"{chains[module]} -> {ours}"
                queue.append(ours)
    return sorted(wrong)


@pytest.mark.parametrize("package", sorted(FORBIDDEN))
def test_no_part_reaches_what_it_must_not(package: str) -> None:
    assert any(is_below(m, package) for m in MODULES), f"{package} is gone: mend this test's table"
    assert not wrong_imports(package, FORBIDDEN[package], MODULES)


OF_CLUSTERS = ("kubernetes", "kfp.Client", "kfp.client", "kfp_server_api")


def test_only_the_room_of_the_cluster_imports_clients_of_clusters() -> None:
    """And nothing imports that room: whoever runs pipelines here needs no client."""
    wrong = [
        f"{module} imports {name}"
        for module, path in MODULES.items()
        if not is_below(module, "yanmo_pipelines.cluster")
        for name in imports_of(path.read_text(encoding="utf-8"))
        if any(is_below(name, each) for each in (*OF_CLUSTERS, "yanmo_pipelines.cluster"))
    ]
    assert not wrong
    room = [path for module, path in MODULES.items() if is_below(module, "yanmo_pipelines.cluster")]
    assert any("kubernetes.client" in imports_of(path.read_text(encoding="utf-8")) for path in room)


def arrows(modules: dict[str, Path]) -> dict[str, set[str]]:
    """Module -> the modules of ours that it imports."""
    found = {}
    for module, path in modules.items():
        names = (as_module(name, modules) for name in imports_of(path.read_text(encoding="utf-8")))
        found[module] = {n for n in names if n and n != module and modules[n].name != "__init__.py"}
    return found


def test_imports_run_down_from_floor_to_floor() -> None:
    rooms = {m.split(".")[1] for m in MODULES if m.startswith("yanmo.")}
    assert rooms == set(MAY_IMPORT), "say here and in docs/explanation/architecture.md where it stands"
    wrong = [
        f"{module} imports {name}"
        for module, names in arrows(MODULES).items()
        for name in names
        if is_below(module, "yanmo") and is_below(name, "yanmo")
        if name.split(".")[1] not in {module.split(".")[1], *MAY_IMPORT[module.split(".")[1]]}
    ]
    assert not wrong


def test_every_arrow_between_rooms_that_the_table_allows_is_used() -> None:
    """Where the last import of its kind went, the permission goes too: a new arrow is a decision."""
    found: dict[str, set[str]] = {room: set() for room in MAY_IMPORT}
    for module, names in arrows(MODULES).items():
        if is_below(module, "yanmo") and module != "yanmo":
            found[module.split(".")[1]] |= {n.split(".")[1] for n in names if is_below(n, "yanmo")}
    assert {room: names - {room} for room, names in found.items()} == MAY_IMPORT


def test_no_files_import_each_other_in_a_circle() -> None:
    graph = arrows(MODULES)
    while ends := [module for module, names in graph.items() if not names & graph.keys()]:
        for module in ends:
            del graph[module]
    assert not graph, "circles run through (or lead to) these"


def test_pipelines_read_only_the_config_of_a_stage() -> None:
    for module in (m for m in MODULES if is_below(m, "yanmo_pipelines")):
        for name in imports_of(MODULES[module].read_text(encoding="utf-8")):
            stage = next((s for s in STAGES if is_below(name, f"yanmo.{s}")), None)
            assert not stage or is_below(name, f"yanmo.{stage}.config"), f"{module} imports {name}"


def test_nobody_imports_relatively_or_through_a_source_root() -> None:
    for module, path in MODULES.items():
        for name in imports_of(path.read_text(encoding="utf-8")):
            assert not name.startswith("."), f"{module} imports {name}: write the whole name"
            assert name.partition(".")[0] not in ("components", "pipelines"), f"{module} imports {name}"


@pytest.mark.parametrize("stage", STAGES)
def test_a_config_needs_only_the_standard_library(stage: str) -> None:
    """Without site-packages; and it loads no code of the stage's own work."""
    code = f"import sys; sys.path.insert(0, {str(ROOT / 'components')!r}); import yanmo.{stage}.config as c; "
    code += f"assert c.STAGE.name == {stage!r}; assert len([m for m in sys.modules if m[:5] == 'yanmo']) < 40"
    ended = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr


EXTRA = {"data": ("resolve", "curate", "balance", "tokenize"), "train": ("train", "evaluate", "promote")}
"""Extra, which an image installs -> the stages that run in it."""
NOT_EVERYWHERE = {"ray", "transformers", "tensorboard", "mlflow", "wandb"}
"""Another extra brings these; the code that asks for them does without, or says so."""


@functools.cache
def distributions() -> Mapping[str, list[str]]:
    """Package -> who brings it, of all that is installed."""
    return packages_distributions()


@pytest.mark.parametrize(("extra", "stage"), [(e, s) for e, stages in EXTRA.items() for s in stages])
def test_every_package_that_a_stage_imports_is_declared(extra: str, stage: str) -> None:
    """What comes along with another package is not declared, and goes when that package lets it go."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    required = [*project["dependencies"], *project["optional-dependencies"][extra]]
    declared = {re.split(r"[=<>\[; ]", r, maxsplit=1)[0].lower() for r in required}
    assert stage in STAGES
    brought, graph = distributions(), arrows(MODULES)
    reached = queue = {m for m in MODULES if is_below(m, f"yanmo.{stage}")}
    while queue := {n for m in queue for n in graph[m]} - reached:
        reached |= queue
    undeclared = {
        f"{module} imports {top}"
        for module in reached
        for name in imports_of(MODULES[module].read_text(encoding="utf-8"))
        if not as_module(name, MODULES)
        if (top := name.partition(".")[0]) not in {*sys.stdlib_module_names, *NOT_EVERYWHERE}
        if not {d.lower().replace("_", "-") for d in brought.get(top, ())} & declared
    }
    assert not undeclared, f"declare it in the extra `{extra}`"


@pytest.mark.parametrize("stage", STAGES)
def test_each_stage_has_its_doors(stage: str) -> None:
    folder = ROOT / "components/yanmo" / stage
    assert (folder / "__main__.py").is_file()
    assert (folder / "__init__.py").read_bytes() == b"", "importing a stage's package must do nothing"
    for root in ("components", "pipelines"):
        assert not (ROOT / root / "__init__.py").exists(), f"{root}/ is a source root, not a package"


BROKEN = {
    "in a function": {"yanmo/curate/a.py": "def f():\n    import torch"},
    "by an attribute of another module": {
        "yanmo/curate/a.py": "from yanmo.model.net import F",
        "yanmo/model/net.py": "from torch import nn",
    },
    "by a package": {"yanmo/curate/a.py": "import yanmo.model", "yanmo/model/__init__.py": "import torch"},
}


@pytest.mark.parametrize("case", BROKEN)
def test_the_rule_finds_a_wrong_import_however_it_is_written(case: str, tmp_path: Path) -> None:
    packages = {"yanmo/curate/__init__.py": "", "yanmo/model/__init__.py": ""}
    for name, source in (packages | BROKEN[case]).items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(source)
    found = wrong_imports("yanmo.curate", {"torch"}, modules_of([tmp_path]))
    assert len(found) == 1 and "yanmo.curate must not import torch" in found[0]


def test_the_rule_is_content_with_names_that_only_look_alike(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a/b.py").write_text("import torchlight\nfrom x import torch\nimport torch_like.torch")
    assert not wrong_imports("a", {"torch"}, modules_of([tmp_path]))
