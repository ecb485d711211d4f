"""`yanmo model import ADAPTER --base MODEL`: a LoRA adapter, ours or peft's, added to its own model."""

from __future__ import annotations

import logging
from pathlib import Path

from yanmo.common.errors import DataError, UsageError
from yanmo.formats.token_cache import TOKENIZER
from yanmo.model.weights_check import check_weights, num_weights, read_headers
from yanmo.store.commit import Attempt, Recipe, Result, commit_once
from yanmo.store.manifest import file_sha256
from yanmo.store.objects import ObjectStore
from yanmo.store.output import Output
from yanmo.tools.store.find import find

log = logging.getLogger(__name__)
CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json")


def is_adapter(folder: Path) -> bool:
    """Whether a folder holds an adapter and no model."""
    return (folder / CONFIG).is_file() and not (folder / "config.json").exists()


def import_adapter(store: ObjectStore, folder: Path, base_name: str, channel: str) -> Output:
    """Commit the model that an adapter makes of its base.

    Raises:
        UsageError: no base is named, or it is no model.
        DataError: the adapter was made for another model, or is damaged.
    """
    from yanmo.model.adapter_files import check_fits, read_adapter

    if not base_name:
        raise UsageError(f"{folder}: an adapter, which belongs to a model: name it by --base train/KEY")
    base = find(store, base_name, "train", channel=channel, where="--base")
    adapter = read_adapter(folder)
    if adapter.base_digest and adapter.base_digest != base.content_digest:
        raise DataError(
            f"{folder}: was trained beside the model of content digest {adapter.base_digest[:12]}, and "
            f"{base} has {base.content_digest[:12]}; name the model that it belongs to by --base"
        )
    base.path("model.safetensors")
    at = base.path("config.json").parent
    check_weights(at)
    check_fits(adapter, {name: one.shape for name, one in read_headers(at).items()}, f"{base}", folder)
    if not adapter.base_digest:
        log.warning("%s does not say which model it belongs to; its shapes fit %s", folder, base)
    digests = {name: file_sha256(folder / name) for name in (CONFIG, WEIGHTS)}
    recipe = Recipe(stage="train", revision=1, semantic={"imported": digests}, inputs={"model": base})
    output = commit_once(store, recipe, lambda attempt: _build(attempt, folder, base))
    assert output is not None, "an import never pauses"
    return output


def _build(attempt: Attempt, folder: Path, base: Output) -> Result:
    from yanmo.model.adapter_files import read_adapter
    from yanmo.model.hf_export import describe, read_config
    from yanmo.model.lora import merge_file

    adapter, at = read_adapter(folder), base.path("config.json").parent
    config, symbols = read_config(at)
    into = attempt.path("config.json").parent
    merge_file(at, config, into / "model.safetensors", adapter.weights, adapter.lora.scale)
    files = [base.path(name) for name in TOKENIZER_FILES if base.entries(name)]
    for name in ("model.safetensors", *describe(config, symbols, into, files)):
        attempt.add(name)
    for name in (CONFIG, WEIGHTS):
        attempt.path(f"adapter/{name}").write_bytes((folder / name).read_bytes())
        attempt.add(f"adapter/{name}")
    return Result(
        counts={"steps": 0, "tokens": 0, "parameters": num_weights(into)},
        metadata={"imported": True, "genres": list(symbols.genres)},
        references={TOKENIZER: base.part(TOKENIZER)} if TOKENIZER in base.manifest.references else {},
    )
