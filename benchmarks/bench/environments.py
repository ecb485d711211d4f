"""The packages of the others: each benchmark's in an environment of its own, made once."""

from __future__ import annotations

import json
import site
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

from bench.declared import Benchmark

FOLDER = Path(__file__).parents[2] / ".bench"
_LIST = "packages.json"


def python_of(benchmark: Benchmark) -> str:
    """A Python that has the benchmark's packages, and Yanmo's beside them unless they are kept apart.

    Raises:
        SystemExit: they cannot be installed; says which command failed.
    """
    if not benchmark.packages:
        return sys.executable
    folder = FOLDER / benchmark.name
    asked = [*benchmark.packages, sys.version, "" if benchmark.is_apart else sysconfig.get_path("purelib")]
    listed, python = folder / _LIST, folder / "bin/python"
    if listed.exists() and json.loads(listed.read_text(encoding="utf-8")) == asked:
        return str(python)
    print(f"{benchmark.name}: installing {' '.join(benchmark.packages)} into {folder}", file=sys.stderr)
    venv.create(folder, clear=True, with_pip=True)
    if not benchmark.is_apart:
        _see_ours(python)
    install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    if subprocess.run([*install, *benchmark.packages], check=False).returncode:
        raise SystemExit(
            f"{benchmark.name}: {' '.join(benchmark.packages)} could not be installed (see above). "
            "Is there a network? ONLY= leaves a benchmark out"
        )
    listed.write_text(json.dumps(asked), encoding="utf-8")
    return str(python)


def _see_ours(python: Path) -> None:
    """Let an environment import ours behind its own packages; pip then installs nothing twice."""
    command = [str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
    packages = Path(subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip())
    ours = sysconfig.get_path("purelib")
    assert ours in site.getsitepackages(), f"{ours} is no folder of packages"
    line = f"import site; site.addsitedir({ours!r})\n"
    (packages / "yanmo_benchmarks.pth").write_text(line, encoding="utf-8")
