"""Metrics and tasks of installed packages, through the whole stage."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ink_extras
import pytest
from tiny_store import Ground, read

from yanmo.common.errors import ExitCode
from yanmo.store.output import Output, open_reference
from yanmo.store.pointers import read_pointer


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example package, installed."""
    return ink_extras.installed(tmp_path_factory.mktemp("example"))


def evaluate(site: Path | None, ground: Ground, *argv: str) -> tuple[int, str]:
    given = ground.arguments("--documents", "none", "--samples", "4", *argv)
    done = ink_extras.run(site, "evaluate", *given)
    return done.returncode, done.stderr


def opened(ground: Ground) -> Output:
    pointer = read_pointer(ground.store, "dev", "evaluate")
    assert pointer is not None
    return open_reference(ground.store, pointer)


@pytest.mark.process
def test_the_example_measures_and_asks_and_is_in_the_key(site: Path, ground: Ground):
    code, log = evaluate(None, ground)
    assert code == 0, log
    without = opened(ground)
    assert not without.entries("plugins.json") and "plugins" not in without.manifest.inputs
    given = ("--plugin-metrics", "bits_by_line", "--plugin-tasks", "line_order")
    code, log = evaluate(site, ground, *given)
    assert code == 0, log
    output = opened(ground)
    assert output.manifest.key != without.manifest.key
    named = "bits_by_line (ink-extras 1.0), line_order (ink-extras 1.0)"
    assert output.manifest.inputs["plugins"]["uri"] == named
    found: dict[str, Any] = read(output, "plugins.json")
    assert {found[kind][name]["version"] for kind, name in _BOTH} == {"1.0"}
    by_genre = found["metrics"]["bits_by_line"]["values"]
    genres = read(output, "summary.json")["genres"]
    for genre, figures in genres.items():  # of four lines each
        lines = 4 * figures["documents"]
        bits = figures["bits_per_character"] * figures["characters"]
        assert by_genre[genre] == pytest.approx(bits / lines, rel=1e-4)
    asked = found["tasks"]["line_order"]["values"]
    assert asked["of"] == sum(figures["documents"] for figures in genres.values())
    assert 0 <= asked["accuracy"] <= 1
    assert read(output, "summary.json")["genres"] == read(without, "summary.json")["genres"]


_BOTH = (("metrics", "bits_by_line"), ("tasks", "line_order"))


@pytest.mark.process
def test_a_task_may_let_the_model_write(ground: Ground, tmp_path: Path):
    code = (
        "def planted(texts, model):\n"
        "    written = model.write([each.text[:3] for each in texts[:5]], max_tokens=4)\n"
        "    return {'characters': sum(map(len, written)), 'of': len(written)}\n"
    )
    package = ink_extras.written(tmp_path / "source", "ink_asks", "1.0", "yanmo.tasks", {"planted": code})
    own = ink_extras.installed(tmp_path / "installed", package)
    ended, log = evaluate(own, ground, "--plugin-tasks", "planted")
    assert ended == 0, log
    assert read(opened(ground), "plugins.json")["tasks"]["planted"]["values"]["of"] == 5


BAD = {
    "raises": ("1 / 0", "failed: ZeroDivisionError"),
    "empty": ("{}", "expected 1 to 1000 numbers by name"),
    "endless": ("{'a': float('inf')}", "expected a name and a finite number"),
    "word": ("{'a': '1'}", "expected a name and a finite number"),
    "unnamed": ("{1: 2.0}", "expected a name and a finite number"),
    "leaves": ("exit(0)", "failed: SystemExit: 0"),
}
"""Metric -> what it gives back, and what is said of it."""


@pytest.fixture(scope="module")
def bad(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A package with all of them, installed."""
    folder = tmp_path_factory.mktemp("bad")
    codes = {name: f"def planted(texts):\n    return {given}\n" for name, (given, _) in BAD.items()}
    package = ink_extras.written(folder / "source", "ink_bad", "3.0", "yanmo.metrics", codes)
    return ink_extras.installed(folder / "installed", package)


@pytest.mark.process(few=1)
@pytest.mark.parametrize("name", BAD)
def test_what_goes_wrong_in_a_metric_is_told_as_its_own(ground: Ground, bad: Path, name: str):
    ended, log = evaluate(bad, ground, "--plugin-metrics", name)
    assert ended == ExitCode.BUG and BAD[name][1] in log and f"plugin {name} (ink" in log, log
    assert "a bug in Yanmo" not in log and read_pointer(ground.store, "dev", "evaluate") is None


def test_one_that_is_not_installed_is_refused_before_the_model_is_read(ground: Ground):
    ended, log = evaluate(None, ground, "--plugin-tasks", "line_order")
    assert ended == ExitCode.ENVIRONMENT
    assert "--plugin-tasks: no installed package has a plugin 'line_order'" in log and "pip install" in log
    assert "scored" not in log
