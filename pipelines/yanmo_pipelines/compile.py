"""`yanmo compile`: the pipelines as YAML that KFP's UI, its API and `yanmo run` take.

The YAML is committed, so that a reader sees the real interface and an upload needs no Python.
"""

from __future__ import annotations

import hashlib
import importlib
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from yanmo.common.answers import answer, only_answers
from yanmo.common.command_end import as_process, ended
from yanmo.common.errors import ExitCode, UsageError, naming
from yanmo.common.made_by import code
from yanmo.common.words import did_you_mean
from yanmo.options.command_line import load
from yanmo.options.fields import default_argv, opt
from yanmo.stage.declaration import Stage
from yanmo_pipelines import resources
from yanmo_pipelines.pod_options import PodOptions

PIPELINES = {
    "language_model": "yanmo_pipelines.language_model",
    "language_model_on_nodes": "yanmo_pipelines.language_model_on_nodes",
    "chat": "yanmo_pipelines.chat",
    "data_only": "yanmo_pipelines.data_only",
}
"""Name of a pipeline of stages -> module with `build`."""


COMPONENTS: dict[str, tuple[str, ...]] = {
    "curate": (),
    "balance": ("documents",),
    "tokenize": ("documents",),
    "train": ("token_cache",),
    "evaluate": ("model", "evaluation_set", "documents"),
    "promote": ("challenger",),
}
"""Stage -> the inputs that its component takes as artifacts; the others are the channel's, or options."""

COMPILED = Path(__file__).resolve().with_name("compiled")
"""Where the committed YAML lies: in the package, or beside it in a checkout."""
if not COMPILED.is_dir():
    COMPILED = COMPILED.parents[1] / "compiled"


def load_pipeline(
    name: str, column: str = resources.SMALL, store_secret: str = resources.STORE_SECRET
) -> Any:
    """Return the pipeline called `name`, built with a column of the table of resources.

    In a thread of its own, whose stack is short: KFP 2.17 calls `inspect.stack()` for each option of a task,
    and that looks through all loaded modules for each frame that belongs to none of them.
    """
    build = importlib.import_module(PIPELINES[name]).build
    with ThreadPoolExecutor(1) as short_stack:
        return short_stack.submit(build, column, store_secret).result()


def find_pipeline(pipeline: str) -> tuple[Path, tuple[Stage, ...]]:
    """Return the compiled YAML of a pipeline and, where its name is known, its stages.

    Raises:
        UsageError: there is no such file.
    """
    path = COMPILED / f"{pipeline}.yaml" if pipeline in PIPELINES else Path(pipeline)
    if not path.is_file():
        raise UsageError(
            f"--pipeline {pipeline}: no file {path}; expected {', '.join(PIPELINES)} or "
            f"the path of a compiled YAML{did_you_mean(pipeline, PIPELINES)}"
        )
    return path, stages_of(pipeline)


def stages_of(pipeline: str) -> tuple[Stage, ...]:
    """Return the stages of a pipeline; none of one that is known by its path alone."""
    from yanmo_pipelines.stages import STAGES  # 0.1 s: the options of all stages; `--help` needs none

    return STAGES.get(pipeline, ())


def load_component(name: str) -> Any:
    """The component of the stage called `name`, for a pipeline of somebody else's."""
    from kfp import dsl

    from yanmo_pipelines.kfp_adapter import component

    stage = importlib.import_module(f"yanmo.{name}.config").STAGE
    classes = {each: dsl.Model if each == "model" else dsl.Dataset for each in COMPONENTS[name]}
    return component(stage, classes)


def compile_pipeline(pipeline: Any, path: Path, image_prefix: str = "", with_ray: bool = False) -> None:
    """Write a pipeline or component to `path`, whole or not at all.

    Args:
        image_prefix, with_ray: see `resources.images_of`.
    """
    from kfp import compiler  # 1 s; the names of the pipelines are read without, and so is --help

    path.parent.mkdir(parents=True, exist_ok=True)
    with naming(path), tempfile.TemporaryDirectory(dir=path.parent, prefix=".compile-") as folder:
        temporary = Path(folder) / path.name
        compiler.Compiler().compile(pipeline, str(temporary))
        text = temporary.read_text(encoding="utf-8")
        for name, there in resources.images_of(image_prefix, with_ray).items():
            text = text.replace(f" image: {name}\n", f" image: {there}\n")
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(path)


def version_name(path: Path, column: str) -> str:
    """Return a name for the version that a compiled pipeline is: `4d00e56c0a12-gpu-1f3ab86e`.

    It names the commit, the column of the table of resources, and the bytes of the YAML, so equal names stand
    for equal pipelines and none has to be overwritten.
    """
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return f"{code()}-{column}-{digest[:8]}".lower().replace("+", ".").lstrip("-")


@dataclass(frozen=True, kw_only=True)
class CompileOptions(PodOptions, group="compile"):
    """Compile the pipelines, and a component of each stage, to YAML for KFP."""

    out: str = opt("pipelines/compiled", "folder to write to", metavar="FOLDER")


def main(argv: Sequence[str] | None = None) -> int:
    """Compile every pipeline, and the component of each stage; returns the exit code."""

    def serve() -> int:
        options = load(CompileOptions, default_argv(argv), "yanmo compile")
        folder = Path(options.out)
        for path in (
            *(folder / f"{n}.yaml" for n in PIPELINES),
            *(folder / f"components/{n}.yaml" for n in COMPONENTS),
        ):
            with only_answers():
                if path.parent == folder:
                    made = load_pipeline(path.stem, options.resources, options.store_secret)
                else:
                    made = load_component(path.stem)
                compile_pipeline(made, path, options.image_prefix, options.ray)
            answer(str(path))
        return ExitCode.DONE

    return ended("compile", serve)


if __name__ == "__main__":
    as_process(main)
