"""Each image has a table of what it holds, under which licences; made here from this environment."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from importlib.metadata import distributions
from pathlib import Path

ROOT = Path(__file__).parents[2]


def table(*folders: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-I", str(ROOT / "images/licences.py"), *folders]
    return subprocess.run(command, capture_output=True, text=True)


def test_every_package_is_there_with_its_licence_and_each_text_exists() -> None:
    here = sysconfig.get_path("purelib")
    done = table(here)
    assert done.returncode == 0, done.stderr
    rows = [line.split("\t") for line in done.stdout.splitlines() if not line.startswith("#")]
    assert rows.pop(0) == ["kind", "name", "version", "licence", "texts"]
    python = {row[1]: row for row in rows if row[0] == "python"}
    assert {each.metadata["Name"] for each in distributions(path=[here])} == python.keys() - {"CPython"}
    assert python["numpy"][3].startswith("BSD-3-Clause") and python["tokenizers"][3:] == [
        "Apache Software License",
        "",
    ]
    assert all(row[3] or row[4] for row in rows)
    assert all(Path(text).is_file() for row in rows for text in row[4].split())
    if Path("/var/lib/dpkg/status").is_file():
        debian = {row[1]: row for row in rows if row[0] == "debian"}
        assert "GPL-3+" in debian["bash"][3] and debian["bash"][4] == "/usr/share/doc/bash/copyright"


def test_a_package_that_says_nothing_of_a_licence_is_named_and_fails_the_build(tmp_path: Path) -> None:
    info = tmp_path / "mute-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mute\nVersion: 1.0\n", encoding="utf-8")
    (info / "RECORD").write_text("mute.py,,\nmute-1.0.dist-info/METADATA,,\n", encoding="utf-8")
    done = table(str(tmp_path))
    assert (done.returncode, done.stderr) == (1, "no licence is named by: mute 1.0\n")
    (info / "RECORD").write_text("mute-1.0.dist-info/METADATA,,\n", encoding="utf-8")
    assert table(str(tmp_path)).returncode == 0
