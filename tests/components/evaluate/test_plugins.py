"""Metrics of installed packages, through the whole stage."""

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
def test_the_example_measures_and_is_in_the_key(site: Path, ground: Ground):
    code, log = evaluate(None, ground)
    assert code == 0, log
    without = opened(ground)
    assert not without.entries("plugins.json") and "plugins" not in without.manifest.inputs
    code, log = evaluate(site, ground, "--plugin-metrics", "bits_by_line")
    assert code == 0, log
    output = opened(ground)
    assert output.manifest.key != without.manifest.key
    assert output.manifest.inputs["plugins"]["uri"] == "bits_by_line (ink-extras 1.0)"
    found: dict[str, Any] = read(output, "plugins.json")
    assert found["metrics"]["bits_by_line"]["version"] == "1.0"
    by_genre = found["metrics"]["bits_by_line"]["values"]
    genres = read(output, "summary.json")["genres"]
    for genre, figures in genres.items():  # of four lines each
        lines = 4 * figures["documents"]
        bits = figures["bits_per_character"] * figures["characters"]
        assert by_genre[genre] == pytest.approx(bits / lines, rel=1e-4)
    assert read(output, "summary.json")["genres"] == read(without, "summary.json")["genres"]


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
    ended, log = evaluate(None, ground, "--plugin-metrics", "bits_by_line")
    assert ended == ExitCode.ENVIRONMENT
    assert "--plugin-metrics: no installed package has a plugin 'bits_by_line'" in log
    assert "pip install" in log
    assert "scored" not in log
