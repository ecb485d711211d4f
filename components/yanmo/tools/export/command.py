"""The command line of `yanmo export`."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from yanmo.common.answers import answer, only_answers
from yanmo.common.command_end import ended
from yanmo.common.errors import ExitCode
from yanmo.common.logs import setup
from yanmo.common.made_by import made_by
from yanmo.common.words import plural
from yanmo.options.command_line import load
from yanmo.options.fields import default_argv
from yanmo.store.opening import default_store, store_of
from yanmo.store.settings import StoreSettings
from yanmo.tools.export.options import ExportOptions

if TYPE_CHECKING:
    from yanmo.tools.export.contents import Source
    from yanmo.tools.export.origin import Origin
    from yanmo.tools.export.place import Place

log = logging.getLogger(__name__)


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
    from yanmo.tools.export.place import place_of

    place = place_of(options.folder, StoreSettings.of(options), overwrite=options.overwrite)
    place.check()
    folder, origin = _opened(options)
    source = checked(folder)
    _write(options, source, origin, place)


def _opened(options: ExportOptions) -> tuple[Path, Origin]:
    """The model's folder and its lineage.

    Raises:
        DataError: there is none.
    """
    from yanmo.tools.export.origin import Origin, origin_of
    from yanmo.tools.generate.named_model import is_folder, model_output

    if is_folder(options.model):
        log.warning("%s: nothing says what it learned from, and so does its card", options.model)
        return Path(options.model), Origin(Path(options.model).resolve().name)
    store = store_of(options, options.store or default_store())
    output = model_output(store, options.model, options.channel)
    log.info("model=%s", output)
    output.paths("*")  # verified, all of them
    return output.path("config.json").parent, origin_of(output)


def _write(options: ExportOptions, source: Source, origin: Origin, place: Place) -> None:
    from yanmo.tools.export.card import model_card
    from yanmo.tools.export.contents import write_settings, write_weights
    from yanmo.tools.export.gguf_file import modelfile, write_gguf
    from yanmo.tools.export.place import RECORD, record_of

    is_remote = "://" in options.folder
    name = options.name or (Path(options.folder) if is_remote else Path(options.folder).resolve()).name
    facts = {
        "model": origin.name,
        "content_digest": origin.output.content_digest if origin.output else "",
        "for": options.for_,
        "dtype": options.dtype,
        "yanmo": made_by()["yanmo"],
    }
    with place.staged() as folder:
        if options.for_ == "llama.cpp":
            write_gguf(source, folder / "model.gguf", name, options.dtype)
            (folder / "Modelfile").write_text(modelfile(source), encoding="utf-8")
        else:
            write_weights(source, folder, options.dtype)
            write_settings(source, folder, options.dtype)
        card = model_card(options, name, source, origin)
        (folder / "README.md").write_text(card, encoding="utf-8")
        (folder / RECORD).write_text(record_of(folder, facts), encoding="utf-8")
        total = sum(path.stat().st_size for path in folder.iterdir())
        place.publish(folder)
    log.info("%s: %s", options.folder, plural(total, "byte"))
