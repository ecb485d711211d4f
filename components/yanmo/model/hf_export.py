"""Writes a model as a folder that transformers and similar tools load, and reads such a folder.

`config.json` names transformers' class of the decoder, such as Qwen3ForCausalLM, `model.safetensors` has the
weights in fp32 under the decoder's own parameter names, and the tokenizer files are copied. Neither writing
nor reading needs transformers.
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
from yanmo.common.foreign import foreign
from yanmo.common.given_file import read_object
from yanmo.model.decoder import ARCHITECTURES, Decoder, DecoderConfig
from yanmo.model.weights_check import WEIGHTS, check_is_no_gguf, check_weights, read_headers, weight_files
from yanmo.model.weights_file import read_tensor, write_tensors

TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Symbols:
    """Ids of the special tokens."""

    bos: int
    eos: int
    pad: int
    genres: tuple[str, ...] = ()
    """Names of the genres, in the order of their tags."""
    tag_ids: tuple[int, ...] = ()
    """The tag of each genre."""

    def tag(self, genre: str) -> int | None:
        """Return the id of a genre's tag, or None for a genre the model has never seen."""
        return dict(zip(self.genres, self.tag_ids, strict=True)).get(genre)


class Loaded(NamedTuple):
    """A model read from its folder."""

    model: Decoder
    symbols: Symbols


def hf_config(config: DecoderConfig, symbols: Symbols, dtype: str = "float32") -> dict[str, Any]:
    """Return the contents of `config.json`, readable by transformers 4.51 and later.

    Args:
        dtype: of the weights in the files, as torch names it.
    """
    shape = dataclasses.asdict(config)
    theta = shape["rope_theta"]
    return {
        "architectures": [ARCHITECTURES[config.model_type]],
        **shape,
        "rope_parameters": {"rope_type": "default", "rope_theta": theta},
        "rope_scaling": None,
        "hidden_act": "silu",
        "attention_bias": config.has_biases,
        "attention_dropout": 0.0,
        "use_sliding_window": False,
        "initializer_range": 0.02,
        "use_cache": True,
        "dtype": dtype,
        "torch_dtype": dtype,
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
    return sorted([WEIGHTS, *describe(model.config, symbols, folder, tokenizer_files)])


def describe(
    config: DecoderConfig,
    symbols: Symbols,
    folder: Path,
    tokenizer_files: Sequence[Path] = (),
    dtype: str = "float32",
) -> list[str]:
    """Write what lies beside a model's weights; returns the names of the files."""
    generation = {
        "bos_token_id": symbols.bos,
        "eos_token_id": symbols.eos,
        "pad_token_id": symbols.pad,
        "do_sample": True,
        "temperature": 0.8,
        "top_p": 0.95,
    }
    written = {
        "config.json": hf_config(config, symbols, dtype),
        "generation_config.json": generation,
        "genres.json": {"genres": list(symbols.genres), "tag_ids": list(symbols.tag_ids)},
    }
    for name, value in written.items():
        text = json.dumps(value, ensure_ascii=False, indent=2, sort_keys=True)
        (folder / name).write_text(text + "\n", encoding="utf-8")
    for path in tokenizer_files:
        (folder / path.name).write_bytes(path.read_bytes())
    return [*written, *(path.name for path in tokenizer_files)]


def load(folder: Path) -> Loaded:
    """Return the model in `folder` (this project's, or any of ARCHITECTURES in safetensors files), in fp32.

    Raises:
        DataError: a file is missing, does not hold what config.json says, or holds weights that are not
            finite.
    """
    config, symbols = read_config(folder)
    shapes = shapes_of(folder, config)
    check_weights(folder, shapes)
    parts = (read_tensors(part) for part in weight_files(folder))
    state = {name: value for part in parts for name, value in part.items() if name in shapes}
    if config.tie_word_embeddings:
        state["lm_head.weight"] = state["model.embed_tokens.weight"]
    model = Decoder(config)
    model.load_state_dict(state)
    return Loaded(model.eval(), symbols)


def load_frozen(folder: Path, dtype: torch.dtype) -> Decoder:
    """Return what `load` does in another type, without the memory for weights in fp32, and with each weight
    frozen."""
    config, _ = read_config(folder)
    check_weights(folder, shapes_of(folder, config))
    with torch.device("meta"):
        model = Decoder(config).to(dtype)
    model.to_empty(device="cpu").requires_grad_(False)
    if config.tie_word_embeddings:
        model.lm_head.weight = model.model.embed_tokens.weight
    stored = read_headers(folder)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(read_tensor(stored[name]))
    return model


def read_tensors(path: Path) -> dict[str, torch.Tensor]:
    """Return the tensors of a safetensors file.

    Raises:
        DataError: it is none, or damaged.
    """
    with foreign(f"{path}: not a readable safetensors file", "copy or download it again"):
        return load_file(path)


def shapes_of(folder: Path, config: DecoderConfig) -> dict[str, tuple[int, ...]]:
    """Return the shapes of a decoder's stored tensors by name; a tied head only where a file has it."""
    head, wide = config.head_dim, config.hidden_size
    queries, keys = config.num_attention_heads * head, config.num_key_value_heads * head
    block = {
        "input_layernorm": (wide,),
        "post_attention_layernorm": (wide,),
        "self_attn.q_proj": (queries, wide),
        "self_attn.k_proj": (keys, wide),
        "self_attn.v_proj": (keys, wide),
        "self_attn.o_proj": (wide, queries),
        "mlp.gate_proj": (config.intermediate_size, wide),
        "mlp.up_proj": (config.intermediate_size, wide),
        "mlp.down_proj": (wide, config.intermediate_size),
    }
    if config.has_head_norms:
        block |= {"self_attn.q_norm": (head,), "self_attn.k_norm": (head,)}
    biases = {"q_proj": queries, "k_proj": keys, "v_proj": keys} if config.has_biases else {}
    found: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (config.vocab_size, wide),
        "model.norm.weight": (wide,),
    }
    for i in range(config.num_hidden_layers):
        found |= {f"model.layers.{i}.{name}.weight": shape for name, shape in block.items()}
        found |= {f"model.layers.{i}.self_attn.{name}.bias": (size,) for name, size in biases.items()}
    if not config.tie_word_embeddings or "lm_head.weight" in read_headers(folder):
        found["lm_head.weight"] = (config.vocab_size, wide)
    return found


def _check_kind(path: Path, value: dict[str, Any]) -> None:
    """Refuse models whose outputs our decoder would compute differently without a word.

    Raises:
        DataError: the model has scaled rotary positions, another activation, layers of another kind than
            full attention, a sliding window, or quantized weights.
    """
    wrong: dict[str, bool] = {}
    for name in ("rope_scaling", "rope_parameters"):  # before transformers 5, and since
        rope = value.get(name) or {}
        if not isinstance(rope, dict):
            raise DataError(f"{path}: {name}: expected an object, found {rope!r:.60}")
        kind = rope.get("rope_type", rope.get("type", "default"))
        wrong[f"rope_type {kind!r:.60} of {name}"] = kind != "default"
        by_layer = next((key for key, of_it in rope.items() if isinstance(of_it, dict)), "")
        wrong[f"{name} of {by_layer!r:.60} alone"] = bool(by_layer)
        share = rope.get("partial_rotary_factor", value.get("partial_rotary_factor"))
        wrong[f"partial_rotary_factor {share!r:.60}"] = share not in (None, 1)
    theta, other = value.get("rope_theta"), (value.get("rope_parameters") or {}).get("rope_theta")
    wrong[f"rope_theta {theta!r:.60}, and {other!r:.60} in rope_parameters,"] = (
        None not in (theta, other) and theta != other
    )
    layers = value.get("layer_types") or []
    wrong |= {
        f"hidden_act {value.get('hidden_act')!r}": value.get("hidden_act", "silu") != "silu",
        "use_sliding_window": bool(value.get("use_sliding_window")),
        # Of Qwen2 it says nothing: its queries, keys and values have biases whatever its config.json says.
        "attention_bias": bool(value.get("attention_bias")) and value.get("model_type") != "qwen2",
        "mlp_bias": bool(value.get("mlp_bias")),
        f"layer_types {layers!r:.60}": not isinstance(layers, list)
        or any(layer != "full_attention" for layer in layers),
        "quantization_config": bool(value.get("quantization_config")),
    }
    for what, is_wrong in wrong.items():
        if is_wrong:
            raise DataError(
                f"{path}: {what} is not supported: its outputs would be computed wrongly here; take a plain "
                f"model of type {', '.join(ARCHITECTURES)}"
            )


_MOST = 1 << 31
_MOST_LAYERS = 10_000
"""Largest numbers in a config.json that are believed; a larger one is damage."""


def read_config(folder: Path) -> tuple[DecoderConfig, Symbols]:
    """Return the shape and the special ids of the model in a folder, from its config.json and genres.json.

    Raises:
        DataError: one is missing or damaged, or describes a decoder that is not supported.
    """
    check_is_no_gguf(folder)
    path = folder / "config.json"
    value = read_object(path)
    kind = value.get("model_type")
    if not isinstance(kind, str) or kind not in ARCHITECTURES:
        *others, last = map(repr, ARCHITECTURES)
        raise DataError(
            f"{path}: expected model_type {', '.join(others)} or {last}, found {kind!r:.60}; other kinds of "
            "models cannot be computed here"
        )
    _check_kind(path, value)
    _fill_in(value, folder)
    names = [field.name for field in dataclasses.fields(DecoderConfig)]
    missing = [name for name in names if name not in value]
    if missing:
        raise DataError(f"{path}: lacks {', '.join(missing)}; expected those of a {kind} model")
    wrong = [f"{name} {value[name]!r:.60}" for name in names if not _is_possible(name, value[name])]
    if wrong:
        raise DataError(
            f"{path}: {', '.join(wrong)}: no decoder has such a shape; expected that of a {kind} model"
        )
    try:
        config = DecoderConfig(**{name: value[name] for name in names})
    except ValueError as error:
        raise DataError(f"{path}: {error}") from error
    return config, _symbols(folder, value, config.vocab_size)


def _fill_in(value: dict[str, Any], folder: Path) -> None:
    """Add what a config.json may leave out, as transformers does.

    Where it does not say whether the head is the embedding, the weights do: transformers takes a head of its
    own, and older ones wrote nothing of a shared one.
    """
    rope = value.get("rope_parameters") or {}
    value.setdefault("rope_theta", rope.get("rope_theta", 10_000.0))
    value.setdefault("rms_norm_eps", 1e-6)
    value.setdefault("max_position_embeddings", 2048 if value["model_type"] == "llama" else 32_768)
    if value.get("tie_word_embeddings") is None:
        value["tie_word_embeddings"] = "lm_head.weight" not in read_headers(folder)
    if value["model_type"] == "qwen3":  # whose default is a number, not what follows from the others
        return
    heads, wide = value.get("num_attention_heads"), value.get("hidden_size")
    if value.get("num_key_value_heads") is None and heads is not None:
        value["num_key_value_heads"] = heads
    if (
        value.get("head_dim") is None
        and type(heads) is int
        and type(wide) is int
        and heads
        and wide % heads == 0
    ):
        value["head_dim"] = wide // heads


def _is_possible(name: str, value: Any) -> bool:
    if name == "model_type":
        return value in ARCHITECTURES
    if name == "tie_word_embeddings":
        return isinstance(value, bool)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if name in ("rope_theta", "rms_norm_eps"):
        return is_number and 0 < value < float("inf")
    most = _MOST_LAYERS if name == "num_hidden_layers" else _MOST
    return is_number and isinstance(value, int) and 1 <= value <= most


def _symbols(folder: Path, value: dict[str, Any], size: int) -> Symbols:
    ids = {}
    for name in ("bos_token_id", "eos_token_id", "pad_token_id"):
        found = value.get(name)
        first = found[0] if isinstance(found, list) and found else found or 0
        if name == "pad_token_id" and first == -1:  # of the first Llamas: none
            first = 0
        if not _is_id(first, size):
            raise DataError(f"{folder / 'config.json'}: {name} {found!r}: expected an id below {size}")
        ids[name] = first
    path = folder / "genres.json"
    genres = read_object(path) if path.exists() else {}
    names, tags = genres.get("genres", []), genres.get("tag_ids", [])
    are_lists = isinstance(names, list) and isinstance(tags, list) and len(names) == len(tags)
    if not (are_lists and all(isinstance(n, str) for n in names) and all(_is_id(t, size) for t in tags)):
        raise DataError(
            f"{path}: expected genres, a list of names, and tag_ids, as many ids below {size}; correct it, "
            "or leave the file out"
        )
    bos, eos, pad = ids.values()
    return Symbols(bos=bos, eos=eos, pad=pad, genres=tuple(names), tag_ids=tuple(tags))


def generation_config(folder: Path) -> dict[str, Any]:
    """Return how a folder's texts are chosen and ended; empty where it does not say."""
    path = folder / "generation_config.json"
    return read_object(path) if path.is_file() else {}


def ends_of(folder: Path, symbols: Symbols, size: int) -> list[int]:
    """Return where transformers ends a text: the ids of generation_config.json, else of config.json.

    Raises:
        DataError: what is there are no ids of the vocabulary.
    """
    for name, value in (
        ("generation_config.json", generation_config(folder)),
        ("config.json", read_object(folder / "config.json")),
    ):
        found = value.get("eos_token_id")
        ids = found if isinstance(found, list) else [] if found is None else [found]
        if not all(_is_id(i, size) for i in ids):
            raise DataError(f"{folder / name}: eos_token_id {found!r:.60}: expected ids below {size}")
        if ids:
            return list(ids)
    return [symbols.eos]


def _is_id(value: Any, size: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < size
