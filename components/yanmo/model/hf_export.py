"""A model as the folder that transformers and its friends load, and back.

`config.json` says Qwen3ForCausalLM, `model.safetensors` holds the decoder's own parameter names in fp32, the
tokenizer files are copied. transformers itself is not needed on either way.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors.torch import load_file

from yanmo.common.errors import DataError
from yanmo.model.decoder import Decoder, DecoderConfig
from yanmo.model.weights_file import write_tensors

WEIGHTS = "model.safetensors"
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Symbols:
    """The token ids that have a meaning of their own."""

    bos: int
    eos: int
    pad: int
    genres: tuple[str, ...] = ()
    """Names of the genres, in the order of their tags."""
    tag_ids: tuple[int, ...] = ()
    """The tag of each genre."""

    def tag(self, genre: str) -> int | None:
        """The id of a genre's tag, or None for a genre the model has never seen."""
        return dict(zip(self.genres, self.tag_ids, strict=True)).get(genre)


class Loaded(NamedTuple):
    """A model read from its folder."""

    model: Decoder
    symbols: Symbols


def hf_config(config: DecoderConfig, symbols: Symbols) -> dict[str, Any]:
    """The contents of `config.json`, readable by transformers 4.51 and later."""
    shape = dataclasses.asdict(config)
    theta = shape["rope_theta"]
    return {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        **shape,
        "rope_parameters": {"rope_type": "default", "rope_theta": theta},
        "rope_scaling": None,
        "hidden_act": "silu",
        "attention_bias": False,
        "attention_dropout": 0.0,
        "use_sliding_window": False,
        "initializer_range": 0.02,
        "use_cache": True,
        "dtype": "float32",
        "torch_dtype": "float32",
        "bos_token_id": symbols.bos,
        "eos_token_id": symbols.eos,
        "pad_token_id": symbols.pad,
    }


def save(model: Decoder, symbols: Symbols, folder: Path, tokenizer_files: Sequence[Path] = ()) -> list[str]:
    """Write the model into `folder` and return the names of its files, sorted.

    Args:
        tokenizer_files: copied as they are.
    """
    folder.mkdir(parents=True, exist_ok=True)
    state = {name: value.detach().float().contiguous().cpu() for name, value in model.state_dict().items()}
    if model.config.tie_word_embeddings:
        del state["lm_head.weight"]
    write_tensors(state, folder / WEIGHTS, metadata={"format": "pt"})
    generation = {
        "bos_token_id": symbols.bos,
        "eos_token_id": symbols.eos,
        "pad_token_id": symbols.pad,
        "do_sample": True,
        "temperature": 0.8,
        "top_p": 0.95,
    }
    written = {
        "config.json": hf_config(model.config, symbols),
        "generation_config.json": generation,
        "genres.json": {"genres": list(symbols.genres), "tag_ids": list(symbols.tag_ids)},
    }
    for name, value in written.items():
        text = json.dumps(value, ensure_ascii=False, indent=2, sort_keys=True)
        (folder / name).write_text(text + "\n", encoding="utf-8")
    for path in tokenizer_files:
        (folder / path.name).write_bytes(path.read_bytes())
    return sorted([WEIGHTS, *written, *(path.name for path in tokenizer_files)])


def load(folder: Path) -> Loaded:
    """The model in `folder` (this project's, or any Qwen3-type model in safetensors files), in fp32.

    Raises:
        DataError: a file is missing or does not hold what config.json says.
    """
    config, symbols = _read_config(folder)
    model = Decoder(config)
    path = folder / WEIGHTS
    paths = [path] if path.exists() else sorted(folder.glob("*.safetensors")) or [path]
    try:
        state = {name: value for part in paths for name, value in load_file(part).items()}
    except FileNotFoundError:
        raise
    except Exception as error:  # safetensors raises its own SafetensorError for a damaged file
        raise DataError(f"{path}: not a readable safetensors file: {error}") from error
    if config.tie_word_embeddings:
        state.setdefault("lm_head.weight", state.get("model.embed_tokens.weight", torch.empty(0)))
    try:
        model.load_state_dict(state)
    except RuntimeError as error:
        raise DataError(f"{path}: does not fit {folder / 'config.json'}: {error}") from error
    return Loaded(model.eval(), symbols)


def _check_kind(path: Path, value: dict[str, Any]) -> None:
    """Refuse what our decoder would compute otherwise without a word.

    Raises:
        DataError: scaled rotary positions, another activation, a sliding window.
    """
    rope = value.get("rope_scaling") or value.get("rope_parameters") or {}
    kind = rope.get("rope_type", rope.get("type", "default"))
    wrong = {
        f"rope_type {kind!r}": kind != "default",
        f"hidden_act {value.get('hidden_act')!r}": value.get("hidden_act", "silu") != "silu",
        "use_sliding_window": bool(value.get("use_sliding_window")),
    }
    for what, is_wrong in wrong.items():
        if is_wrong:
            raise DataError(f"{path}: {what} is not supported; expected a plain Qwen3 model")


def _read_config(folder: Path) -> tuple[DecoderConfig, Symbols]:
    path = folder / "config.json"
    value = json.loads(path.read_text(encoding="utf-8"))
    if value.get("model_type") != "qwen3":
        raise DataError(f"{path}: expected model_type qwen3, found {value.get('model_type')!r}")
    _check_kind(path, value)
    value.setdefault("rope_theta", value.get("rope_parameters", {}).get("rope_theta", 10_000.0))
    names = [field.name for field in dataclasses.fields(DecoderConfig)]
    missing = [name for name in names if name not in value]
    if missing:
        raise DataError(f"{path}: lacks {', '.join(missing)}")
    genres_path = folder / "genres.json"
    genres: dict[str, Any] = {}
    if genres_path.exists():
        genres = json.loads(genres_path.read_text(encoding="utf-8"))
    eos = value.get("eos_token_id")
    symbols = Symbols(
        bos=value.get("bos_token_id") or 0,
        eos=eos[0] if isinstance(eos, list) else eos or 0,
        pad=value.get("pad_token_id") or 0,
        genres=tuple(genres.get("genres", ())),
        tag_ids=tuple(genres.get("tag_ids", ())),
    )
    return DecoderConfig(**{name: value[name] for name in names}), symbols
