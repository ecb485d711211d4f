"""The command line of `yanmo export`."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from yanmo.common.answers import answer, only_answers
from yanmo.common.command_end import as_process, ended
from yanmo.common.errors import ExitCode
from yanmo.common.logs import setup
from yanmo.common.made_by import made_by
from yanmo.common.words import plural
from yanmo.options.command_line import load
from yanmo.options.fields import default_argv, opt, word
from yanmo.options.shared import MODEL, ToolOptions, channel_opt
from yanmo.store.opening import default_store, store_of

if TYPE_CHECKING:
    from yanmo.tools.export.contents import Source
    from yanmo.tools.export.place import Place

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class ExportOptions(ToolOptions, group="export"):
    """Write a model as a folder that transformers, vLLM or llama.cpp serve.

        yanmo export demo exported/demo --store runs/demo    # the champion of the channel demo
        yanmo export demo exported/demo-gguf --store runs/demo --for llama.cpp
        yanmo export train/1bcc4416 exported/small --store runs/demo --dtype bf16

    Weights, tokenizer with chat template, the marks that end a text, and README.md, the model card that
    `yanmo train` wrote; an imported model has none. The folder is there whole or not at all, and one that
    is there is not replaced without --overwrite. Exit code: 0, 64, 65 (no such model, or a damaged one),
    75, 78.
    """

    model: str = word(f"model: a folder in Hugging Face's layout, {MODEL}")
    folder: str = word("folder to make")
    for_: str = opt(
        "transformers",
        "what will read it: transformers and vllm one folder in Hugging Face's layout; llama.cpp a GGUF "
        "file, with a Modelfile for Ollama",
        choices=("transformers", "vllm", "llama.cpp"),
        often=True,
    )
    channel: str = channel_opt("channel of what is named without one, such as run:ID")
    dtype: str = opt("fp32", "type of the weights", choices=("fp32", "bf16"), often=True)
    overwrite: bool = opt(False, "replace a folder that an earlier export made", often=True)

    def contradictions(self) -> Iterator[str]:
        """Return what no folder can be called."""
        if not self.folder.strip():
            yield "FOLDER is empty: expected a folder to make"


def main(argv: Sequence[str] | None = None) -> int:
    """Export a model; returns the exit code."""

    def serve() -> int:
        options = load(ExportOptions, default_argv(argv), "yanmo export")
        setup(options.log_level, "export", options.log_format)
        with only_answers():
            _run(options)
        answer(options.folder)
        return ExitCode.DONE

    return ended("export", serve, "nothing half-written is there; the same command starts it again")


def _run(options: ExportOptions) -> None:
    from yanmo.tools.export.contents import checked
    from yanmo.tools.export.place import Place

    place = Place(options.folder, overwrite=options.overwrite)
    place.check()
    folder, name, digest = _opened(options)
    _write(options, checked(folder), {"model": name, "content_digest": digest}, place)


def _opened(options: ExportOptions) -> tuple[Path, str, str]:
    """Return the model's folder, its name, and its content digest ("" of a folder).

    Raises:
        DataError: there is none.
    """
    from yanmo.tools.generate.named_model import is_folder, model_output

    if is_folder(options.model):
        return Path(options.model), Path(options.model).resolve().name, ""
    store = store_of(options, options.store or default_store())
    output = model_output(store, options.model, options.channel, "MODEL")
    log.info("model=%s", output)
    output.paths("*")  # verified, all of them
    return output.path("config.json").parent, f"{output}", output.content_digest


def _write(options: ExportOptions, source: Source, facts: dict[str, str], place: Place) -> None:
    from yanmo.tools.export.contents import write_settings, write_weights
    from yanmo.tools.export.gguf_file import modelfile, write_gguf
    from yanmo.tools.export.place import RECORD, record_of

    facts |= {"for": options.for_, "dtype": options.dtype, "yanmo": made_by()["yanmo"]}
    card = source.folder / "README.md"
    with place.staged() as folder:
        if options.for_ == "llama.cpp":
            write_gguf(source, folder / "model.gguf", place.path.name, options.dtype)
            (folder / "Modelfile").write_text(modelfile(source), encoding="utf-8")
        else:
            write_weights(source, folder, options.dtype)
            write_settings(source, folder, options.dtype)
        if card.is_file():
            shutil.copyfile(card, folder / card.name)
        (folder / RECORD).write_text(record_of(folder, facts), encoding="utf-8")
        total = sum(path.stat().st_size for path in folder.iterdir())
        place.publish(folder)
    log.info("%s: %s", options.folder, plural(total, "byte"))


if __name__ == "__main__":
    as_process(main)
