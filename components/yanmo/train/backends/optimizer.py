"""Muon for the layers' matrices and AdamW for the rest, on the flat partitions that ZeRO gives each rank.

DeepSpeed's own Muon orthogonalizes while the gradient partition is filled, before the norm is taken, in all
ZeRO classes but one. `gradient_clipping` then silently divides its steps by about 54
(docs/explanation/recipe.md). Here Muon is an ordinary client optimizer: DeepSpeed reduces, measures and
clips the true gradient, in any precision and ZeRO stage, and then this `step` runs. It knows where each
matrix lies in its rank's flat partition; momentum is elementwise and stays flat. The few matrices that
ZeRO-1 and 2 cut at the end of a partition (at most one per rank) are put together with one small
all-reduce, and every rank that holds a part computes the whole update. ZeRO-3 cuts every matrix: there each
rank computes the updates of some of them, and a second all-reduce distributes the results.

Newton-Schulz runs in fp32 on CPUs, where bf16 is slow without avx512_bf16, and in bf16 on GPUs (in fp16 on
those that emulate bf16). There it takes matrices of one shape together: one by one they are thousands of
small kernels in a step, and a host launches those more slowly than a GPU runs them.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, assert_never

import torch
import torch.distributed as dist
from torch import Tensor, nn

from yanmo.model.attention import DTYPES, lowest_capability
from yanmo.model.flash_limits import half_precision
from yanmo.train.memory.estimate import MOST_TOGETHER
from yanmo.train.options.recipe_options import Rule

_COEFFICIENTS = (3.4445, -4.7750, 2.0315)
"""Coefficients of the quintic iteration, as in Keller Jordan's Muon and torch.optim.Muon."""
_ITERATIONS = 5
_LONG = 1.5
"""From this ratio of its sides on, a matrix costs fewer operations by its factors: 34 w^3 + 4 w^2 l, where w
is the shorter side, and not 10 w^3 + 20 w^2 l."""


def never_compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function itself, without torch's wrapper that keeps torch.compile away from it.

    The wrapper imports torch._dynamo at its first call: 1.1 CPU-seconds in each rank, also where nothing is
    compiled. It remembers what to call in `__dynamo_disable`; a torch that looks elsewhere starts as slowly
    as before, and test_supervisor.py fails.
    """
    plain: Callable[..., Any] = inspect.unwrap(function)
    setattr(plain, "__dynamo_disable", plain)
    return plain


@dataclass(frozen=True)
class Piece:
    """The part of a parameter that lies in this rank's flat partition of its group."""

    name: str
    shape: torch.Size
    start: int
    """First element, counted in the flattened parameter."""
    count: int
    """Number of elements."""
    at: int
    """Offset of the first element in the partition."""

    @property
    def is_whole(self) -> bool:
        return self.count == self.shape.numel()


def orthogonalize(update: Tensor, dtype: torch.dtype) -> Tensor:
    """Roughly the nearest semi-orthogonal matrix, by Newton-Schulz: its singular values are 0.7 to 1.2.

    X becomes p(X X^T) X, five times, with p(G) = a + b G + c G^2. Of a long matrix only the factors p(G)
    are computed, and multiplied with it at the end: G and p(G) commute, so the next G is p(G) G p(G). Not in
    16 bits, where the errors of G grow.

    Args:
        update: a matrix, or several of one shape: (number, rows, columns).
    """
    a, b, c = _COEFFICIENTS
    x = update if dtype == torch.float16 else update.to(dtype)  # fp16 has no numbers as small as a gradient's
    wide = x.shape[-2] <= x.shape[-1]
    x = x if wide else x.mT
    norm = x.norm() if x.ndim == 2 else torch.linalg.vector_norm(x, dim=(-2, -1), keepdim=True)
    x = (x / norm.clamp(min=1e-7)).to(dtype)
    if dtype == torch.float32 and x.shape[-1] >= _LONG * x.shape[-2]:
        x = _factor(x @ x.mT) @ x
    else:
        added = _added_product(x)
        for _ in range(_ITERATIONS):
            gram = x @ x.mT
            x = added(x, added(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return (x if wide else x.mT).to(update.dtype)


def _factor(gram: Tensor) -> Tensor:
    """Return what the iterations multiply a matrix with, from its product with its transpose."""
    a, b, c = _COEFFICIENTS
    factor, added = None, _added_product(gram)
    for left in reversed(range(_ITERATIONS)):
        power = added(gram, gram, gram, beta=b, alpha=c)
        power.diagonal(dim1=-2, dim2=-1).add_(a)
        factor = power if factor is None else power @ factor
        if left:
            gram = power @ gram @ power
    assert factor is not None
    return factor


def _added_product(x: Tensor) -> Callable[..., Tensor]:
    """torch's beta * input + alpha * product, of one matrix or of several."""
    return torch.addmm if x.ndim == 2 else torch.baddbmm


def parameter_groups(model: nn.Module, options: Any, device: str = "cpu") -> list[dict[str, Any]]:
    """Return the optimizer's parameter groups: matrices of the layers, embedding, head (if untied), norms and
    biases; what is frozen is in none.

    Args:
        options: a TrainConfig.
        device: on cuda matrices of one shape come one after another, so that Muon takes them as one.
    """
    matrices, embedding, head, norms = [], [], [], []
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            continue
        if parameter.ndim < 2:
            norms.append(parameter)
        elif "embed_tokens" in name:
            embedding.append(parameter)
        elif "lm_head" in name:
            head.append(parameter)
        else:
            matrices.append(parameter)
    if device == "cuda":
        matrices.sort(key=lambda matrix: matrix.shape)
    of_matrices: Rule = options.optimizer
    match of_matrices:
        case "muon":
            rate = options.muon_learning_rate
        case "adamw":
            rate = options.adam_learning_rate
        case _:
            assert_never(of_matrices)
    groups = [
        {"params": matrices, "lr": rate, "weight_decay": options.weight_decay, "rule": of_matrices},
        {"params": embedding, "lr": options.adam_learning_rate, "weight_decay": 0.0, "rule": "adamw"},
        {"params": head, "lr": options.head_learning_rate, "weight_decay": 0.0, "rule": "adamw"},
        {"params": norms, "lr": options.norm_learning_rate, "weight_decay": 0.0, "rule": "adamw"},
    ]
    groups = [group for group in groups if group["params"]]
    for group in groups:
        group["peak_lr"] = group["lr"]
        group["momentum"] = options.momentum
    return groups


@dataclass(frozen=True)
class Cuts:
    """The matrices of a group that are cut between ranks, one after another in a common buffer."""

    places: dict[str, int]
    """Offset of each matrix in the buffer."""
    shapes: dict[str, torch.Size]
    size: int
    """Elements of the buffer."""


class MatrixAdamW(torch.optim.AdamW):
    """Muon for groups whose `rule` says so, fused AdamW for the others.

    If `locate` was not called, the parameters are whole and Muon updates each by itself: the plain optimizer
    that the partitioned one is tested against.
    """

    def __init__(self, groups: list[dict[str, Any]], betas: tuple[float, float], eps: float = 1e-8) -> None:
        never_compiled(torch.optim.Optimizer.add_param_group)
        self._adam_step = never_compiled(torch.optim.Adam.step)
        super().__init__(groups, betas=betas, eps=eps, fused=True)
        self._pieces: dict[int, list[Piece]] = {}
        self._cut: dict[int, Cuts] = {}
        self.idle = False
        """If True, a step changes nothing: for an engine that can only clear gradients by a step."""
        self.found_inf: Tensor | None = None
        """1 if the step must change nothing, else 0 (fp32, no dimensions, on the device): the host need not
        wait for it. torch's fused AdamW reads an attribute of this name."""
        self.orthogonalizes_on: torch.device | None = None
        """Where Muon takes matrices of one shape together, wherever the state is (--offload); None takes each
        by itself, where it is."""
        self.together = MOST_TOGETHER
        """Most elements of the matrices that are taken together there; a larger one is taken alone."""
        self.observer: Callable[[Tensor], None] | None = None
        """Called with each parameter before it is updated."""

    def locate(self, flat: Tensor, pieces: list[Piece], cut: Cuts) -> None:
        """Say which parameters lie in a flat partition.

        Args:
            flat: the group's partition on this rank.
            pieces: what lies in it.
            cut: the matrices of the group that are cut between ranks.
        """
        self._pieces[id(flat)], self._cut[id(flat)] = pieces, cut

    def make_states(self, flat: Tensor, rule: Rule) -> None:
        """Make the states of a flat partition, all zeros, as the first step would."""
        state = self.state[flat]
        state.clear()
        match rule:
            case "muon":
                state["momentum_buffer"] = torch.zeros_like(flat, requires_grad=False)
            case "adamw":
                state["step"] = torch.zeros((), dtype=torch.float32, device=flat.device)
                state["exp_avg"] = torch.zeros_like(flat, requires_grad=False)
                state["exp_avg_sq"] = torch.zeros_like(flat, requires_grad=False)
            case _:
                assert_never(rule)

    def _accelerator_graph_capture_health_check(self) -> None:
        """No step is captured as a graph of a GPU; torch's check looks for GPUs each time, 0.6 ms."""

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """One update with the gradients, which the engine has clipped already."""
        if self.idle:
            return
        groups = self.param_groups
        if self.observer is not None:
            for parameter in (p for group in groups for p in group["params"]):
                self.observer(parameter)
        by_adam = []
        for group in groups:
            rule: Rule = group["rule"]
            match rule:
                case "muon":
                    for parameter in group["params"]:
                        self._muon(parameter, group)
                case "adamw":
                    by_adam.append(group)
                case _:
                    assert_never(rule)
        self.param_groups = by_adam
        try:
            if self.param_groups:
                self._adam_step(self)
        finally:
            self.param_groups = groups

    def _muon(self, parameter: Tensor, group: dict[str, Any]) -> None:
        if parameter.grad is None:
            return
        state = self.state[parameter]
        if "momentum_buffer" not in state:
            state["momentum_buffer"] = torch.zeros_like(parameter)
        momentum, gradient = state["momentum_buffer"], parameter.grad
        blend, decay = 1 - group["momentum"], 1 - group["lr"] * group["weight_decay"]
        refused = None if self.found_inf is None else self.found_inf.bool()
        if refused is not None:
            gradient.masked_fill_(refused, 0.0)
            blend, decay = torch.where(refused, 0.0, blend), torch.where(refused, 1.0, decay)
        momentum.lerp_(gradient, blend)
        nesterov = gradient.lerp(momentum, group["momentum"])
        parameter.mul_(decay)
        if id(parameter) not in self._pieces:
            parameter.add_(_unless(refused, _update(nesterov)), alpha=-group["lr"])
            return
        done = self._cut_updates(parameter, nesterov)
        pieces = self._pieces[id(parameter)]
        if self.orthogonalizes_on is not None:
            whole = [piece for piece in pieces if piece.name not in done]
            for run in _runs(whole, self.together):
                span = slice(run[0].at, run[-1].at + run[-1].count)
                matrices = nesterov[span].view(len(run), *run[0].shape)
                update = _update(matrices.to(self.orthogonalizes_on)).reshape(-1).to(parameter.device)
                parameter[span].add_(_unless(refused, update), alpha=-group["lr"])
            pieces = [piece for piece in pieces if piece.name in done]
        for piece in pieces:
            if piece.name in done:
                update = done[piece.name]
            else:
                update = _update(nesterov[piece.at : piece.at + piece.count].view(piece.shape))
            part = update.reshape(-1)[piece.start : piece.start + piece.count]
            place = parameter[piece.at : piece.at + piece.count]
            place.add_(_unless(refused, part.to(place.device)), alpha=-group["lr"])

    def _cut_updates(self, parameter: Tensor, nesterov: Tensor) -> dict[str, Tensor]:
        """Matrix -> update, for the cut matrices of which this rank holds a part."""
        cut = self._cut[id(parameter)]
        if not cut.places:
            return {}
        pieces = [p for p in self._pieces[id(parameter)] if p.name in cut.places]
        # NCCL sends nothing that is in the CPU's memory.
        buffer = nesterov.new_zeros(cut.size, device=self.orthogonalizes_on or nesterov.device)
        for p in pieces:
            begin = cut.places[p.name] + p.start
            buffer[begin : begin + p.count] = nesterov[p.at : p.at + p.count]
        dist.all_reduce(buffer)
        ranks = dist.get_world_size()
        if len(cut.places) < ranks:
            return {p.name: _update(_matrix(buffer, cut, p.name)) for p in pieces}
        mine = list(cut.places)[dist.get_rank() :: ranks]
        updates = torch.zeros_like(buffer)
        for name in mine:
            _matrix(updates, cut, name).copy_(_update(_matrix(buffer, cut, name)))
        dist.all_reduce(updates)
        return {p.name: _matrix(updates, cut, p.name) for p in pieces}


def _runs(pieces: Iterable[Piece], most: int) -> list[list[Piece]]:
    """Whole matrices of one shape that lie one after another, of at most `most` elements where several."""
    runs: list[list[Piece]] = []
    for piece in pieces:
        run = runs[-1] if runs else []
        follows = run and run[0].shape == piece.shape and run[-1].at + run[-1].count == piece.at
        if follows and (len(run) + 1) * piece.count <= most:
            run.append(piece)
        else:
            runs.append([piece])
    return runs


def _matrix(buffer: Tensor, cut: Cuts, name: str) -> Tensor:
    begin, shape = cut.places[name], cut.shapes[name]
    return buffer[begin : begin + shape.numel()].view(shape)


def _unless(refused: Tensor | None, update: Tensor) -> Tensor:
    return update if refused is None else update.masked_fill(refused, 0.0)


def _update(matrix: Tensor) -> Tensor:
    """Muon's update of a whole matrix, or of several of one shape, scaled as in Keller Jordan's Muon: tall
    matrices take larger steps."""
    rows, columns = matrix.shape[-2:]
    scale: float = max(1.0, rows / columns) ** 0.5
    return orthogonalize(matrix, fast_products(matrix.device)) * scale


def cut_places(pieces_of_ranks: Iterable[list[Piece]]) -> Cuts:
    """Return the matrices that are cut between ranks, in the same order on every rank."""
    shapes: dict[str, torch.Size] = {}
    for pieces in pieces_of_ranks:
        shapes.update({p.name: p.shape for p in pieces if not p.is_whole})
    places, size = {}, 0
    for name, shape in shapes.items():
        places[name] = size
        size += shape.numel()
    return Cuts(places, shapes, size)


def fast_products(device: torch.device) -> torch.dtype:
    """Return the dtype of products whose rounding matters little: 16 bits where a device is made for it."""
    if device.type != "cuda":
        return torch.float32
    return DTYPES[half_precision(lowest_capability())]
