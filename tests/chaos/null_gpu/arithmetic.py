"""The null GPU's arithmetic: each operation on CUDA tensors runs on CPU tensors over the same memory.

Device memory is the process's own (source/memory.c), so a CPU tensor can lie over it. Below autograd a
dispatch mode sees every operation of eager code: views are left to torch, allocations are made by its
allocator for CUDA, results are computed by the CPU's kernels. What the CPU has no kernel for is written out
below. Compiled kernels (Triton) are not computed; of SDPA's backends the mathematical one is taken.
"""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

_UNCHANGED = {
    *("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided"),
    *("alias", "detach", "lift_fresh", "_unsafe_view", "set_", "resize_", "record_stream"),
}
"""Operations of torch that write no values: they run as they are."""
_OWN: dict[str, Callable[..., Any]] = {}


def over(tensor: Tensor) -> Tensor:
    """A CPU tensor over the memory of one on the card."""
    storage = tensor.untyped_storage()
    if not storage.nbytes():
        return torch.empty(0, dtype=tensor.dtype).as_strided(tensor.size(), tensor.stride())
    place = (ctypes.c_char * storage.nbytes()).from_address(storage.data_ptr())
    memory = torch.frombuffer(place, dtype=torch.uint8).untyped_storage()
    at = tensor.storage_offset()
    return torch.empty(0, dtype=tensor.dtype).set_(memory, at, tensor.size(), tensor.stride())


def _to_cpu(value: Any) -> Any:
    if isinstance(value, Tensor):
        return over(value) if value.is_cuda else value
    if isinstance(value, torch.device):
        return torch.device("cpu") if value.type == "cuda" else value
    if isinstance(value, torch.Generator):
        return None if value.device.type == "cuda" else value
    return value


def _to_card(value: Any) -> Any:
    if not isinstance(value, Tensor) or value.device.type != "cpu":
        return value
    made = torch.empty_strided(value.size(), value.stride(), dtype=value.dtype, device="cuda")
    if value.numel():
        over(made).copy_(value)
    return made


def _is_of_card(value: Any) -> bool:
    return (isinstance(value, Tensor) and value.is_cuda) or (
        isinstance(value, torch.device) and value.type == "cuda"
    )


class Arithmetic(TorchDispatchMode):
    """Computes what the card would."""

    def __init__(self) -> None:
        super().__init__()
        self._launch = ctypes.CDLL(None).null_gpu_launch

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if not any(map(_is_of_card, tree_leaves((args, kwargs)))):
            return func(*args, **kwargs)
        if func._can_decompose():  # in inference mode what is made of other operations comes here whole
            with self:
                return func.decompose(*args, **kwargs)
        space, name = func._schema.name.split("::")
        collective = space in ("c10d", "_c10d_functional")  # they copy by themselves
        if collective or func.is_view or (space == "aten" and name in _UNCHANGED):
            return func(*args, **kwargs)
        self._launch()
        on_cpu, options = tree_map(_to_cpu, (args, kwargs))
        options.pop("non_blocking", None)
        if "pin_memory" in options:
            options["pin_memory"] = False
        result = _OWN.get(func._schema.name, func)(*on_cpu, **options)
        names = [x.name for x in func._schema.arguments if x.alias_info is not None and x.alias_info.is_write]
        if names:  # it wrote to its arguments; they are what it returns
            given = {x.name: value for x, value in zip(func._schema.arguments, args, strict=False)} | kwargs
            written = [given[one] for one in names]
            number = len(func._schema.returns)
            return None if not number else written[0] if number == 1 else tuple(written)
        to = kwargs.get("device")
        leaves_card = name == "_to_copy" and to is not None and torch.device(to).type == "cpu"
        return result if leaves_card else tree_map(_to_card, result)


def _computes(name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Say what computes an operation of torch that has no kernel for a CPU."""

    def add(function: Callable[..., Any]) -> Callable[..., Any]:
        _OWN[name] = function
        return function

    return add


@_computes("aten::_fused_rms_norm")
def _rms_norm(x: Tensor, shape: list[int], weight: Tensor | None, eps: float | None) -> tuple[Tensor, Tensor]:
    dims = list(range(-len(shape), 0))
    scale = torch.rsqrt(x.float().square().mean(dims, keepdim=True) + (eps or torch.finfo(torch.float32).eps))
    normed = x.float() * scale
    return (normed if weight is None else normed * weight.float()).to(x.dtype), scale


@_computes("aten::_fused_rms_norm_backward")
def _rms_norm_backward(
    d: Tensor, x: Tensor, shape: list[int], scale: Tensor, weight: Tensor | None, wanted: list[bool]
) -> tuple[Tensor | None, Tensor | None]:
    dims, normed, d = list(range(-len(shape), 0)), x.float() * scale, d.float()
    inner = d if weight is None else d * weight.float()
    of_x = (inner - normed * (inner * normed).mean(dims, keepdim=True)) * scale
    if weight is None or not wanted[1]:
        return of_x.to(x.dtype), None
    return of_x.to(x.dtype), (d * normed).sum(list(range(x.dim() - len(shape)))).to(weight.dtype)


def _documents(q: Tensor, k: Tensor, bounds: Tensor, *others: Tensor) -> Any:
    """Of each document: where it lies, its probabilities (H, T, T), and its rows of q, k and others in fp32,
    (H, T, E); keys are repeated for the query heads that share them."""
    groups = q.shape[1] // k.shape[1]
    for begin, end in itertools.pairwise(bounds.tolist()):
        if begin == end:
            continue
        rows = [x[begin:end].float().transpose(0, 1) for x in (q, k, *others)]
        rows = [x.repeat_interleave(groups, 0) if len(x) < q.shape[1] else x for x in rows]
        scores = rows[0] @ rows[1].transpose(1, 2) * q.shape[-1] ** -0.5
        hidden = torch.ones(scores.shape[1:], dtype=torch.bool).triu(1)
        scores.masked_fill_(hidden, float("-inf"))
        yield slice(begin, end), scores, rows


@_computes("torch_attn::_varlen_attn")
def _varlen(q: Tensor, k: Tensor, v: Tensor, bounds: Tensor, *rest: Any) -> tuple[Tensor, Tensor, Tensor]:
    assert rest[3], "causal"
    out, sums = torch.zeros_like(q), torch.zeros(q.shape[1], len(q))
    for at, scores, rows in _documents(q, k, bounds, v):
        out[at] = (scores.softmax(-1) @ rows[2]).transpose(0, 1).to(q.dtype)
        sums[:, at] = scores.logsumexp(-1)
    return out, sums, torch.zeros(2, dtype=torch.int64).view(torch.uint64)


@_computes("torch_attn::_varlen_attn_backward")
def _varlen_backward(
    d: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, sums: Tensor, bounds: Tensor, *rest: Any
) -> tuple[Tensor, ...]:
    found = [torch.zeros_like(x) for x in (q, k, v)]
    for at, scores, (qs, ks, vs, ds) in _documents(q, k, bounds, v, d):
        weights = scores.softmax(-1)
        of_weights = ds @ vs.transpose(1, 2)
        inner = (of_weights * weights).sum(-1, keepdim=True)
        of_scores = weights * (of_weights - inner) * q.shape[-1] ** -0.5
        parts = (of_scores @ ks, of_scores.transpose(1, 2) @ qs, weights.transpose(1, 2) @ ds)
        for whole, part in zip(found, parts, strict=True):
            shared = part.unflatten(0, (whole.shape[1], -1)).sum(1)
            whole[at] = shared.transpose(0, 1).to(whole.dtype)
    return tuple(found)


def begin() -> None:
    """Compute in this process from here on."""
    for name in ("flash", "mem_efficient", "cudnn"):
        getattr(torch.backends.cuda, f"enable_{name}_sdp")(False)
        setattr(torch.backends.cuda, f"enable_{name}_sdp", lambda _: None)  # a training chooses among them
    shown = torch._tensor_str._str  # type: ignore[attr-defined]  # runs where no mode is on

    def on_cpu(tensor: Tensor, **more: Any) -> Any:
        return shown(over(tensor.detach()) if tensor.is_cuda else tensor, **more)

    torch._tensor_str._str = on_cpu  # type: ignore[attr-defined]
    Arithmetic().__enter__()
