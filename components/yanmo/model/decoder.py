"""The decoder: Qwen3's architecture and parameter names, so that its export renames nothing.

Pre-norm blocks with RMSNorm, grouped-query attention with normalized queries and keys, rotary
positions, SwiGLU; tied or untied head. Qwen2's and Llama's shapes differ in attention alone: Qwen2 has biases
in queries, keys and values, and neither normalizes queries and keys. Our own code and not transformers', for
the sake of packed rows, the fused loss and a fast start (transformers is not imported); on a CPU both are
equally fast.

    B = rows, T = positions, D = model width, H = query heads, K = key/value heads, E = head width
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Protocol, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from yanmo.model.attention import documents, whole_rows
from yanmo.model.cpu_kernels import HeadNorms, RMSNorm

ARCHITECTURES = {"qwen3": "Qwen3ForCausalLM", "qwen2": "Qwen2ForCausalLM", "llama": "LlamaForCausalLM"}
"""The kinds of decoders that are computed here: transformers' `model_type` -> the name of its class."""


@dataclass(frozen=True, kw_only=True)
class DecoderConfig:
    """Shape of a decoder; field names are those of transformers' Qwen3Config."""

    vocab_size: int
    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    intermediate_size: int
    max_position_embeddings: int
    rope_theta: float = 10_000.0
    rms_norm_eps: float = 1e-6
    tie_word_embeddings: bool = False
    model_type: str = "qwen3"
    """One of ARCHITECTURES."""

    def __post_init__(self) -> None:
        if self.num_attention_heads % self.num_key_value_heads:
            raise ValueError(
                f"{self.num_attention_heads} query heads cannot share {self.num_key_value_heads} "
                "key/value heads: the one must be a multiple of the other"
            )
        if self.head_dim % 2:
            raise ValueError(f"head width {self.head_dim}: rotary positions need an even one")

    @property
    def has_head_norms(self) -> bool:
        """Return whether queries and keys are normalized."""
        return self.model_type == "qwen3"

    @property
    def has_biases(self) -> bool:
        """Return whether queries, keys and values have biases."""
        return self.model_type == "qwen2"

    def shape(self) -> dict[str, int | float | bool | str]:
        """Return all fields; without the kind of a Qwen3, so that digests of it are what they were before
        others."""
        found = asdict(self)
        if self.model_type == "qwen3":
            del found["model_type"]
        return found


@dataclass(frozen=True, kw_only=True)
class Lora:
    """What is trained beside the frozen matrices of a decoder (lora.py)."""

    rank: int
    alpha: float
    dropout: float
    targets: tuple[str, ...]
    """Names of the layers' matrices, such as q_proj."""

    @property
    def scale(self) -> float:
        return self.alpha / self.rank


class Layout(Protocol):
    """Where the tokens of a batch stand, and what each of them sees.

    Packed documents (attention.py), rows without padding (rows.py), or tokens behind those whose keys and
    values are kept (generation/writer.py): in nothing else do training, scoring and writing differ.
    Leading dimensions `...` are the batch's own, such as (B, T).
    """

    @property
    def positions(self) -> Tensor:
        """Position of each token inside its document, from 0; its shape broadcasts to that of the ids."""

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Return the mixed values, (..., H, E); called once a layer, first layer first.

        Args:
            q: (..., H, E), normalized and rotated, as `k` is.
            k, v: (..., K, E).
        """


class Attention(nn.Module):
    """Grouped-query attention, of Qwen3 with RMS-normalized queries and keys."""

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        D, E = config.hidden_size, config.head_dim
        self.head_dim = E
        self.head_counts = config.num_attention_heads, config.num_key_value_heads
        self.q_proj = nn.Linear(D, config.num_attention_heads * E, bias=config.has_biases)
        self.k_proj = nn.Linear(D, config.num_key_value_heads * E, bias=config.has_biases)
        self.v_proj = nn.Linear(D, config.num_key_value_heads * E, bias=config.has_biases)
        self.o_proj = nn.Linear(config.num_attention_heads * E, D, bias=False)
        self.q_norm = RMSNorm(E, config.rms_norm_eps) if config.has_head_norms else nn.Identity()
        self.k_norm = RMSNorm(E, config.rms_norm_eps) if config.has_head_norms else nn.Identity()
        # See `Decoder.fuse`.
        self.register_buffer("qkv", None, persistent=False)
        self.register_buffer("qkv_bias", None, persistent=False)
        self.qk_norm: nn.Module = nn.Identity()

    def forward(
        self, x: Tensor, rotary: tuple[Tensor, Tensor], layout: Layout, only: Tensor | None = None
    ) -> Tensor:
        mixed = layout.attend(*self.heads(x, rotary)).flatten(-2)
        out: Tensor = self.o_proj(mixed if only is None else mixed[only])
        return out

    def heads(self, x: Tensor, rotary: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        """Return queries (..., H, E), keys and values (..., K, E) of `x` (..., D)."""
        shape = (*x.shape[:-1], -1, self.head_dim)
        if self.qkv is None:
            q = rotate(self.q_norm(self.q_proj(x).view(shape)), rotary)
            k = rotate(self.k_norm(self.k_proj(x).view(shape)), rotary)
            return q, k, self.v_proj(x).view(shape)
        H, K = self.head_counts
        qk, v = torch.split(F.linear(x, self.qkv, self.qkv_bias).view(shape), [H + K, K], -2)
        q, k = torch.split(rotate(self.qk_norm(qk), rotary), [H, K], -2)
        return q, k, v

    def fuse(self) -> None:
        """See `Decoder.fuse`."""
        parts = (self.q_proj, self.k_proj, self.v_proj)
        self.qkv = _joined([part.weight for part in parts])
        biases = [part.bias for part in parts if part.bias is not None]
        self.qkv_bias = _joined(biases) if biases else None
        if isinstance(self.q_norm, RMSNorm) and isinstance(self.k_norm, RMSNorm):
            norms = zip((self.q_norm, self.k_norm), self.head_counts, strict=True)
            self.qk_norm = HeadNorms(
                torch.cat([n.weight.expand(heads, -1) for n, heads in norms]), self.q_norm.eps
            )


class FeedForward(nn.Module):
    """The feed-forward network: SwiGLU."""

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        D, inner = config.hidden_size, config.intermediate_size
        self.gate_proj = nn.Linear(D, inner, bias=False)
        self.up_proj = nn.Linear(D, inner, bias=False)
        self.down_proj = nn.Linear(inner, D, bias=False)
        self.register_buffer("gate_up", None, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        gate, up = self._products(x)
        out: Tensor = self.down_proj(F.silu(gate) * up)
        return out

    def _products(self, x: Tensor) -> tuple[Tensor, ...]:
        if self.gate_up is not None:
            return F.linear(x, self.gate_up).chunk(2, -1)
        return self.gate_proj(x), self.up_proj(x)

    def fuse(self) -> None:
        """See `Decoder.fuse`."""
        self.gate_up = _joined([self.gate_proj.weight, self.up_proj.weight])


def _joined(parts: Sequence[Tensor]) -> Tensor:
    """Return the parts one below the other; they become views of it, so that no weight is held twice."""
    whole = torch.cat([part.data for part in parts])
    for part, view in zip(parts, torch.split(whole, [len(part) for part in parts]), strict=True):
        part.data = view
    return whole


class Block(nn.Module):
    """One layer: attention, then the feed-forward network."""

    dropout = 0.0
    """Dropout, during training, of what attention and feed-forward add to the residual stream."""

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        self.input_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.self_attn = Attention(config)
        self.post_attention_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.mlp = FeedForward(config)

    def forward(
        self, x: Tensor, rotary: tuple[Tensor, Tensor], layout: Layout, only: Tensor | None = None
    ) -> Tensor:
        """Return the residual stream after this layer, (..., D); with `only` (bool) at these positions."""
        mixed = self.self_attn(self.input_layernorm(x), rotary, layout, only)
        x = (x if only is None else x[only]) + self._with_dropout(mixed)
        return x + self._with_dropout(self.mlp(self.post_attention_layernorm(x)))

    def _with_dropout(self, x: Tensor) -> Tensor:
        return F.dropout(x, self.dropout, self.training) if self.dropout else x


class Trunk(nn.Module):
    """Embedding, layers and final norm: what transformers calls `model`."""

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(Block(config) for _ in range(config.num_hidden_layers))
        self.norm = RMSNorm(config.hidden_size, config.rms_norm_eps)


class Decoder(nn.Module):
    """A causal language model over packed rows."""

    attention = "auto"
    """Attention path: auto, varlen, flash or masked; see attention.py."""
    lora: Lora | None = None
    """What is trained beside its frozen weights; see lora.py."""
    compiles_loss = False
    """Whether training compiles the loss; see loss.py."""
    recompute = False
    """Whether training computes a layer's activations again in the backward pass instead of keeping them."""

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        self.config = config
        self.model = Trunk(config)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        if config.tie_word_embeddings:
            self.lm_head.weight = self.model.embed_tokens.weight
        self.register_buffer("rotary", None, persistent=False)  # see `fuse`

    def hidden(self, ids_BT: Tensor, segments_BT: Tensor | None, bounds: Tensor | None = None) -> Tensor:
        """Return the final hidden states of packed rows, (B, T, D): the input of the head.

        Args:
            ids_BT: token ids.
            segments_BT: number of the document at each position; rotary positions restart where it changes.
                None: each row is one document (`whole_rows`).
            bounds: see `yanmo.model.attention.documents`.
        """
        dtype, path = self.model.embed_tokens.weight.dtype, self.attention
        if segments_BT is None:
            segments_BT = torch.zeros_like(ids_BT)
            if ids_BT.device.type == "cuda":
                path, bounds = whole_rows(ids_BT, dtype, path, self.config.head_dim)
        return self.read(ids_BT, documents(segments_BT, dtype, path, bounds, self.config.head_dim))

    def read(self, ids: Tensor, layout: Layout, only: Tensor | None = None) -> Tensor:
        """Return the final hidden states, (..., D): the one forward pass, whatever reads.

        Args:
            ids: token ids, (...).
            only: the positions whose states are wanted (bool, the shape of `ids`): the last layer leaves out
                the others, and (positions, D) is returned. None: all.
        """
        x = self.model.embed_tokens(ids)
        if self.rotary is None or ids.shape[-1] > self.config.max_position_embeddings:
            rotary = rotary_tables(layout.positions, self.config, x.dtype)
        else:
            cos, sin = self.rotary[:, layout.positions]
            rotary = cos, sin
        last = len(self.model.layers) - 1
        for i, layer in enumerate(self.model.layers):
            wanted = only if i == last else None
            if self.recompute and torch.is_grad_enabled():
                x = checkpoint(layer, x, rotary, layout, wanted, use_reentrant=False)
            else:
                x = layer(x, rotary, layout, wanted)
        out: Tensor = self.model.norm(x)
        return out

    @torch.no_grad()
    def fuse(self) -> None:
        """Join the matrices that multiply the same, and keep all angles: for weights that no longer change.

        The sums stay what they are; a token that is written alone takes 0.7 of the time, as its calls cost
        more than its products. The decoder is frozen: a joined matrix has no gradient.
        """
        assert not self.lora, "what an adapter adds would be left out"
        self.eval().requires_grad_(False)
        for layer in self.model.layers:
            block = cast(Block, layer)
            block.self_attn.fuse()
            block.mlp.fuse()
        weight = self.model.embed_tokens.weight
        every = torch.arange(self.config.max_position_embeddings, device=weight.device)
        self.rotary = torch.stack(rotary_tables(every, self.config, weight.dtype))

    def forward(self, ids_BT: Tensor, segments_BT: Tensor | None = None) -> Tensor:
        """Logits (B, T, vocabulary); without segments each row is one document."""
        logits: Tensor = self.lm_head(self.hidden(ids_BT, segments_BT))
        return logits

    @torch.no_grad()
    def initialize(
        self, generator: torch.Generator, embedding_std: float, residual_start: str = "zero"
    ) -> None:
        """Draw all weights: layers' matrices with standard deviation 0.5 / sqrt(fan-in), the head with 0.02.

        Numbers are drawn in double precision: in fp32 torch draws them with the processor's vector unit, and
        39 % of them differ in the last digit between AVX2 and none.

        Args:
            embedding_std: standard deviation of the embedding.
            residual_start: first weights of the matrices that write to the residual stream: zero, or depth,
                which divides the standard deviation of the other matrices by sqrt(2 layers), as in GPT-2.
        """
        depth = 0.0 if residual_start == "zero" else 1 / math.sqrt(2 * self.config.num_hidden_layers)
        for name, parameter in self.named_parameters():
            if name.endswith(("o_proj.weight", "down_proj.weight")):
                spread = depth * 0.5 / math.sqrt(parameter.shape[1])
                _draw(parameter, spread, generator) if depth else parameter.zero_()
            elif "embed_tokens" in name:
                _draw(parameter, embedding_std, generator)
            elif "lm_head" in name:
                _draw(parameter, 0.02, generator)
            elif parameter.ndim == 2:
                _draw(parameter, 0.5 / math.sqrt(parameter.shape[1]), generator)
            else:
                parameter.fill_(0.0 if name.endswith(".bias") else 1.0)


def _draw(parameter: Tensor, std: float, generator: torch.Generator) -> None:
    parameter.copy_(torch.randn(parameter.shape, dtype=torch.float64, generator=generator) * std)


def rotary_tables(positions: Tensor, config: DecoderConfig, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Return cosines and sines of the rotary angles, (..., 1, E/2) each.

    Computed for each batch (a few thousand numbers) and not kept as buffers, as an engine would cast those
    to bf16 together with the weights.
    """
    exponents = torch.arange(0, config.head_dim, 2, device=positions.device).float() / config.head_dim
    angles = positions[..., None, None] * config.rope_theta**-exponents
    return angles.cos().to(dtype), angles.sin().to(dtype)


def rotate(x: Tensor, rotary: tuple[Tensor, Tensor]) -> Tensor:
    """Return `x` (..., H, E), the halves of each head rotated by its position's angles."""
    cos, sin = rotary
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)
