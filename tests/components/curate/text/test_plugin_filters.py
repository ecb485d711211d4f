"""Filters of installed packages: in worker processes, in the key, and with errors of their own."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ink_extras
import pytest

from yanmo.common.errors import ExitCode, UsageError
from yanmo.curate.text.plugin_filters import plugin_filters

DOCUMENTS = Path(__file__).parents[3] / "data" / "documents.jsonl"
RULES = ("--filter-sets", "*=none", "--max-filter-share", "1")


def curate(site: Path | None, store: Path, *argv: str) -> tuple[int, str]:
    """Exit code and log of a run."""
    given = (
        "--sources",
        str(DOCUMENTS),
        "--store",
        str(store),
        "--batch-bytes",
        "4000",
        *RULES,
        "--metrics-port",
        "-1",
    )
    done = ink_extras.run(site, "curate", *given, *argv)
    return done.returncode, done.stderr


def manifests(store: Path) -> list[dict[str, Any]]:
    paths = sorted((store / "cas/curate").glob("*/MANIFEST.json"))
    return [json.loads(path.read_text(encoding="utf-8")) for path in paths]


def report(store: Path) -> dict[str, Any]:
    (path,) = (store / "cas/curate").glob("*/*/report.json")
    return dict(json.loads(path.read_text(encoding="utf-8")))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example package, installed."""
    return ink_extras.installed(tmp_path_factory.mktemp("example"))


@pytest.mark.process
def test_the_example_drops_what_it_says_in_worker_processes_and_is_in_the_key(site: Path, tmp_path: Path):
    for name, workers in (("one", "1"), ("two", "2")):
        store = tmp_path / name
        code, log = curate(site, store, "--plugin-filters", "longest_line<=40", "--workers", workers)
        assert code == 0, log
    one, two = (manifests(tmp_path / name)[0] for name in ("one", "two"))
    assert (one["key"], one["content_digest"]) == (two["key"], two["content_digest"])
    assert one["inputs"]["plugins"]["uri"] == "longest_line<=40 of longest_line (ink-extras 1.0)"
    found = report(tmp_path / "two")
    reason = "plugin:longest_line"
    assert sum(each["documents"] for each in found["dropped"][reason].values()) > 5
    assert found["filters"][reason]["at_most"] == 40
    assert all(e["value"] > 40 for e in found["examples"][reason])
    code, log = curate(None, tmp_path / "none")
    assert code == 0, log
    (without,) = manifests(tmp_path / "none")
    assert "plugins" not in without["inputs"] and without["key"] != one["key"]
    assert without["counts"] != one["counts"]


@pytest.mark.process
def test_another_version_or_bound_is_another_key(site: Path, tmp_path: Path):
    code = "def planted(text, genre):\n    return 0.0\n"
    keys = set()
    for version in ("1.0", "1.1"):
        package = ink_extras.written(
            tmp_path / version, "ink_more", version, "yanmo.filters", {"planted": code}
        )
        own = ink_extras.installed(tmp_path / f"{version}-site", package)
        for bound in ("planted<=1", "planted<=2"):
            ended = curate(own, tmp_path / "store", "--plugin-filters", bound)
            assert ended[0] == 0, ended[1]
            keys = {each["key"] for each in manifests(tmp_path / "store")}
    assert len(keys) == 4
    assert len({each["content_digest"] for each in manifests(tmp_path / "store")}) == 1


BAD = {
    "raises": ("def planted(text, genre):\n    return {}[text]\n", ExitCode.BUG, "failed: KeyError"),
    "late": (
        "seen = []\n"
        "def planted(text, genre):\n"
        "    seen.append(text)\n"
        "    assert len(seen) < 20, 'enough'\n"
        "    return 0\n",
        ExitCode.BUG,
        "failed: AssertionError: enough in planted, line 4",
    ),
    "word": ("def planted(text, genre):\n    return 'many'\n", ExitCode.BUG, "gave 'many' for a text"),
    "nan": ("def planted(text, genre):\n    return float('nan')\n", ExitCode.BUG, "gave nan for a text"),
    "narrow": ("def planted(text):\n    return 1\n", ExitCode.BUG, "failed: TypeError: planted() takes 1"),
    "number": ("planted = 3\n", ExitCode.BUG, "is no function"),
    "leaves": ("def planted(text, genre):\n    raise SystemExit(0)\n", ExitCode.BUG, "failed: SystemExit: 0"),
    "lost": ("import nowhere\n", ExitCode.ENVIRONMENT, "cannot be imported: ModuleNotFoundError"),
    "ends": ("raise SystemExit(0)\n", ExitCode.ENVIRONMENT, "cannot be imported: SystemExit"),
    "bare": ("", ExitCode.ENVIRONMENT, "cannot be imported: AttributeError"),
    "blames": (
        "from yanmo.common.errors import DataError\n"
        "def planted(text, genre):\n    raise DataError('no such genre')\n",
        ExitCode.DATA,
        "no such genre",
    ),
}
"""Plugin -> its code, how curate ends with it, and what it says."""


@pytest.fixture(scope="module")
def bad(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A package with all of them, installed."""
    folder = tmp_path_factory.mktemp("bad")
    codes = {name: code for name, (code, _, _) in BAD.items()}
    package = ink_extras.written(folder / "source", "ink_bad", "2.5", "yanmo.filters", codes)
    return ink_extras.installed(folder / "installed", package)


@pytest.mark.process(few=2)
@pytest.mark.parametrize("name", BAD)
def test_what_goes_wrong_in_a_plugin_is_told_as_its_own(bad: Path, tmp_path: Path, name: str):
    _, ends, said = BAD[name]
    found, log = curate(bad, tmp_path / "store", "--plugin-filters", f"{name}<=1", "--workers", "2")
    assert found == ends, log
    assert f"plugin {name} (ink_bad 2.5)" in log.replace("ink-bad", "ink_bad") and said in log
    assert "a bug in Yanmo" not in log and not (tmp_path / "store/cas/curate").exists()


@pytest.mark.process
@pytest.mark.parametrize("workers", ["1", "2"])
def test_what_a_plugin_prints_is_no_answer_of_the_stage(tmp_path: Path, workers: str):
    code = (
        "import os\n"
        "print('read in')\n"
        "def planted(text, genre):\n"
        "    print('a text of', genre)\n"
        "    os.write(1, b'from C')\n"
        "    return 0\n"
    )
    package = ink_extras.written(tmp_path / "source", "ink_loud", "1.0", "yanmo.filters", {"planted": code})
    own = ink_extras.installed(tmp_path / "installed", package)
    given = ["--sources", str(DOCUMENTS), "--store", str(tmp_path / "store"), *RULES, "--metrics-port", "-1"]
    given += ["--batch-bytes", "4000", "--workers", workers]
    done = ink_extras.run(own, "curate", *given, "--plugin-filters", "planted<=1")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "" and "a text of" in done.stderr and "from C" in done.stderr


@pytest.mark.process
def test_two_packages_with_a_plugin_of_one_name_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    code = "def planted(text, genre):\n    return 0.0\n"
    for name in ("ink_first", "ink_second"):
        package = ink_extras.written(tmp_path / name, name, "1.0", "yanmo.filters", {"planted": code})
        monkeypatch.syspath_prepend(str(ink_extras.installed(tmp_path / f"{name}-site", package)))
    with pytest.raises(UsageError, match=r"ink.first 1\.0 and ink.second 1\.0: expected one package"):
        plugin_filters("planted<=1")


@pytest.mark.process
def test_its_share_can_be_limited_like_that_of_any_filter(site: Path, tmp_path: Path):
    many = ("--plugin-filters", "longest_line<=10")
    code, log = curate(site, tmp_path / "a", *many, "--max-filter-share", "0.1")
    assert code == ExitCode.DATA and "plugin:longest_line takes" in log and "--max-filter-share " in log
    code, log = curate(site, tmp_path / "a", *many, "--max-filter-share", "1")
    assert "plugin:longest_line takes" not in log
    assert code == ExitCode.DATA and "too little text to hold out a test split" in log, (
        "so few cannot be split"
    )


def test_no_plugins_are_no_filters_and_no_part_of_a_key() -> None:
    from yanmo.curate.config import CurateOptions
    from yanmo.curate.phases import rules_input

    make: Callable[..., CurateOptions] = CurateOptions
    assert rules_input(make(sources="x")) == {}
