"""`yanmo compile`: the pipelines as YAML that KFP's UI, its API and `yanmo run` take.

The YAML is committed, so that a reader sees the real interface and an upload needs no Python.
"""

from __future__ import annotations

import importlib
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kfp import compiler

from yanmo.common.answers import answer, only_answers
from yanmo.common.command_end import as_process, ended
from yanmo.common.errors import ExitCode
from yanmo.options.command_line import load
from yanmo.options.fields import Options, default_argv, opt
from yanmo_pipelines import resources

PIPELINES = {
    "language_model": "yanmo_pipelines.language_model",
    "data_only": "yanmo_pipelines.data_only",
}
"""Name of a pipeline -> module with PIPELINE."""

COMPILED = Path(__file__).resolve().parents[1] / "compiled"
"""Where the committed YAML lies in a checkout."""


def load_pipeline(name: str) -> Any:
    """The pipeline called `name`, built."""
    return importlib.import_module(PIPELINES[name]).PIPELINE


def compile_pipeline(pipeline: Any, path: Path, image_prefix: str = "") -> None:
    """Write `pipeline` to `path`, whole or not at all; `image_prefix` goes before each image's name."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=".compile-") as folder:
        temporary = Path(folder) / path.name
        compiler.Compiler().compile(pipeline, str(temporary))
        text = temporary.read_text(encoding="utf-8")
        for name in resources.IMAGES.values():
            text = text.replace(f" image: {name}\n", f" image: {image_prefix}{name}\n")
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(path)


@dataclass(frozen=True, kw_only=True)
class CompileOptions(Options, group="compile"):
    """Compile the pipelines to YAML for KFP."""

    out: str = opt(str(COMPILED), "folder to write to", metavar="FOLDER")
    image_prefix: str = opt(
        "", "put before each image's name, such as registry.example/team/; default: none", metavar="PREFIX"
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Compile every pipeline; returns the exit code."""

    def serve() -> int:
        options = load(CompileOptions, default_argv(argv), "yanmo compile")
        for name in PIPELINES:
            path = Path(options.out) / f"{name}.yaml"
            with only_answers():
                compile_pipeline(load_pipeline(name), path, options.image_prefix)
            answer(str(path))
        return ExitCode.DONE

    return ended("compile", serve)


if __name__ == "__main__":
    as_process(main)
