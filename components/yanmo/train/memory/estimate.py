"""How much memory a training needs, before it starts; without torch, so that the supervisor can say it.

Per rank, in bytes, for P parameters on w ranks, e bytes per weight that the forward reads (4; in 16 bits: 2);
with LoRA the weights are the frozen ones and the adapter's, and P below is of the adapter alone:

    weights       e P                      ZeRO-3: e P / w
    master        4 P / w                  fp32; the plain backend has it once, and none besides in fp32, nor
                  have ZeRO-1 and 2 in fp32
    gradients     4 P (and e P while the backward runs, in 16 bits; of that ZeRO-2 and 3 hold no more than a
                  bucket of DeepSpeed's in fp32, 2 GB)                  ZeRO-2, 3: 4 P / w
    optimizer     4 per element under Muon, 8 under AdamW, / w
    activations   tokens of a micro batch x layers x (4 D + 6 HE + 3 KE + 4 F) e; with gradient
                  checkpointing tokens x layers x D e; besides the backward's own, of one layer (two); the
                  mask T^2 e per row; the head's gradient
                  on CUDA per layer what autograd saves: (4 D + 3 HE + 3 KE + 4 F) e where attention is
                  varlen, (4 D + 5 HE + KE + 4 F) e where K and V are copied for each query head; compiled
                  layers keep 3 F; the larger of the head's and of a layer's own comes on top
    base          python, torch and DeepSpeed; on CUDA its context
    copies        of a checkpoint that is being written, 4 P / w and the optimizer's, on the CPU; and what
                  other moments need beyond the forward and backward, whose activations are gone by then:
                  the update (the monitor's weights of before, 4 P / w; Muon's momentum, DeepSpeed's norm),
                  a look inside (`--monitor full`), a validation, the export (8 P on the CPU)

Measured against peaks in docs/reference/train.md.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

from yanmo.common.errors import EnvironmentFault
from yanmo.common.logs import human_bytes
from yanmo.model.flash_limits import misfit, prefers_cudnn, rows_at_once
from yanmo.options.fields import NONE
from yanmo.train.backends.hardware import machine_memory, this_machine
from yanmo.train.config import TrainConfig
from yanmo.train.options.recipe_options import num_parameters, shape_of

_BASE = {"cpu": 900 << 20, "cuda": 800 << 20, "mps": 800 << 20}
"""RSS of a worker whose state and activations are left out. On a CPU with torch 2.13's CUDA build 797 to
892 MiB, seen in trainings of 80,000 parameters: more than half are libraries, of which more is mapped where
more of them is in the page cache. On CUDA context, cuBLAS and NCCL buffers (not measured)."""
FREE_SHARE = 0.92
"""Share of the memory that may be planned for: allocators waste some."""
MOST_OF_A_BUCKET = 500_000_000
"""Gradients that DeepSpeed reduces at a time, at most (its default; backends/zero.py takes fewer for a
smaller model). ZeRO-2 and 3 free them then: a model of billions never has all its gradients on a rank."""
_PROBE_ROWS = 4
"""Rows that health/monitor.py reads."""
MOST_TOGETHER = 1 << 24
"""Most elements of the matrices that Muon orthogonalizes together on CUDA (backends/optimizer.py): 64 MiB in
fp32, about five times that while it is done."""
SCORED_TOKENS, _GPU_LOGITS = 4096, 1 << 27
"""On CUDA: tokens of a validation batch (validate.py), as a forward of fewer takes less time than its
launches, and logits held at a time (model/scoring.py)."""


@dataclass(frozen=True)
class Estimate:
    """Bytes on one rank."""

    weights: int
    gradients: int
    optimizer: int
    activations: int
    base: int
    copies: int = 0
    """Copies for a checkpoint being written, and what other moments need beyond forward and backward."""
    host: int = 0
    """Memory of the CPU when a GPU trains: copies, and with --offload the optimizer states."""

    @property
    def total(self) -> int:
        """On the device."""
        return self.weights + self.gradients + self.optimizer + self.activations + self.base + self.copies

    def __str__(self) -> str:
        names = ("weights", "gradients", "optimizer", "activations", "base", "copies")
        parts = ", ".join(f"{name} {human_bytes(getattr(self, name))}" for name in names)
        host = f"; and {human_bytes(self.host)} of the CPU's" if self.host else ""
        return f"{human_bytes(self.total)} per rank ({parts}{host})"


def estimate(options: TrainConfig, vocab_size: int, device: str, rows: int = 0) -> Estimate:
    """Return what one rank needs.

    Args:
        rows: of a micro batch; 0 takes the options'.
    """
    w, every, count = options.world_size, *parameters(options, vocab_size)
    tables = 0 if options.lora_rank else (1 if options.tied_head else 2) * vocab_size * options.width
    e = 4 if options.precision == "fp32" else 2
    muon = options.optimizer == "muon"
    states = 8 * tables + (4 if muon else 8) * (count - tables)
    if options.backend == "torch":
        weights, gradients, share = e * every + (4 * count if e == 2 else 0), 4 * count, 1
    else:
        stage, share = options.zero_stage, w
        weights = e * every // (w if stage == 3 else 1)
        if not options.updates_in_place:
            weights += 4 * count // w
        gradients = 4 * count // (w if stage > 1 else 1) + 4 * count // w
        if device == "cuda" and w == 1 and stage < 3 and options.offload != "optimizer":
            gradients = 4 * count  # what was summed is what the update reads
    # The head's fp32 gradient is there before the others; in the backward the embedding's joins it. On one
    # GPU each gradient in 16 bits is freed at once, and its memory was an activation's before; of several
    # ranks that was not seen.
    in_16_bits = e * count if e == 2 and not (device == "cuda" and w == 1) else 0
    is_freed = options.backend == "deepspeed" and options.zero_stage > 1
    passing = 4 * tables + (min(in_16_bits, 4 * MOST_OF_A_BUCKET) if is_freed else in_16_bits)
    if options.frequent_tokens and not _goes_on(options):
        # The head in order of frequency, and its gradient in its own order again.
        passing += 2 * e * vocab_size * options.width
    optimizer, host = states // share, 0
    if options.offload == "optimizer":
        host = optimizer + 8 * count // share
        weights, optimizer = weights - 4 * count // w, 0
        if options.zero_stage == 3:  # hands over piece by piece; the others hold both until the update
            gradients -= 4 * count // w
    backward = activations(options, vocab_size, rows or options.micro_rows, e, device) + passing
    moments = _Moments(options, vocab_size, every, count, tables, e, device)
    writing = (4 * count + states) // w  # a checkpoint's copy, made while the training goes on
    on_host = device == "cuda"
    peak = max(backward, moments.update(), moments.look(), moments.validation())
    peak = max(peak + (0 if on_host else writing), 0 if on_host else moments.export())
    return Estimate(
        weights=weights,
        gradients=gradients,
        optimizer=optimizer,
        activations=backward,
        base=_BASE[device],
        copies=peak - backward,
        host=host + max(writing, moments.export()) if on_host else host,
    )


def _goes_on(options: TrainConfig) -> bool:
    """Return whether the training starts from a model; then all logits are computed."""
    return options.model not in ("", NONE)


def parameters(options: TrainConfig, vocab_size: int) -> tuple[int, int]:
    """Return how many parameters there are, and are trained: with LoRA, the adapter's."""
    every = num_parameters(shape_of(options), vocab_size)
    if not options.lora_rank:
        return every, every
    inner = {"gate_proj", "up_proj", "down_proj"}
    queries, keys = options.heads * options.head_width, options.kv_heads * options.head_width
    outputs = {"q_proj": queries, "o_proj": queries, "k_proj": keys, "v_proj": keys}
    others = (options.feed_forward if name in inner else outputs[name] for name in options.lora_names)
    trained = options.layers * options.lora_rank * sum(options.width + other for other in others)
    return every + trained, trained


@dataclass(frozen=True)
class _Moments:
    """Bytes that moments other than forward and backward need, on top of what is always there."""

    options: TrainConfig
    vocab_size: int
    every: int
    """Parameters, also those that are frozen."""
    count: int
    """Those that are trained."""
    tables: int
    """Those of them in embedding and head."""
    e: int
    device: str

    @property
    def _is_shared_out(self) -> bool:
        return self.options.backend == "deepspeed" and self.options.zero_stage == 3

    def update(self) -> int:
        """Return the monitor's weights of before, its differences of one parameter, and the update's own."""
        o, matrices, table = self.options, self.count - self.tables, self._table
        found = 0
        if o.monitor != "off" and o.monitor_every <= o.steps:
            found = 4 * self.count // o.world_size + 2 * 4 * table
        muon = 4 * matrices // o.world_size if o.optimizer == "muon" else 0
        if muon and self._is_shared_out and o.world_size > 1:
            muon += 8 * matrices  # every matrix is cut: put together, and the updates
        if muon and self.device == "cuda":  # copies in fp32 and bf16 of those that it takes together
            muon += 20 * min(matrices, MOST_TOGETHER)
        # Where torch makes a copy in float64 for a norm; on CUDA it sums in float64 without one.
        in_float64 = o.backend == "deepspeed" and not o.updates_in_place and self.device != "cuda"
        norm = 8 * max(matrices, table) // o.world_size if in_float64 else 0
        return found + max(muon, norm)

    @property
    def _table(self) -> int:
        return self.vocab_size * self.options.width if self.tables else 0

    def _whole(self) -> int:
        """Under ZeRO-3 a whole decoder for the time, on the device and, while it is made, in fp32."""
        if not self._is_shared_out:
            return 0
        return (self.e + (8 if self.device != "cuda" else 0)) * self.every

    def look(self) -> int:
        """Return what `--monitor full` makes of a few rows: attention of all heads, all logits."""
        o = self.options
        if o.monitor != "full" or o.monitor_every > o.steps:
            return 0
        rows = min(_PROBE_ROWS, o.batch_rows)
        scores = 5 * 4 * rows * o.heads * o.context**2
        logits = (self.e + 4 * 4) * rows * o.context * self.vocab_size
        return self._whole() + max(scores, logits)

    def validation(self) -> int:
        """Return logits of some rows, or what a layer makes of a batch."""
        if not self.options.valid_characters:
            return 0
        rows, tokens = 128, 0
        if self.device == "cuda":
            tokens = max(SCORED_TOKENS, self.options.context)
            rows = min(tokens, max(128, _GPU_LOGITS // self.vocab_size))
        of_layer = tokens * _of_layer(self.options, self.e)
        return self._whole() + max(3 * 4 * rows * self.vocab_size, of_layer)

    def export(self) -> int:
        """Return all weights in fp32, and the model that is written: always on the CPU.

        What is frozen is read and written one weight at a time: the largest in the store's type (2 bytes
        where it is not fp32 already) and in fp32, whose bytes are not copied.
        """
        frozen = (2 + 4) * self.vocab_size * self.options.width if self.every > self.count else 0
        return 8 * self.count + frozen


def activations(options: TrainConfig, vocab_size: int, rows: int, e: int, device: str) -> int:
    """Return the bytes that the forward of a micro batch keeps, and the head's tables."""
    if device == "cuda":
        return _activations_on_cuda(options, vocab_size, rows, e)
    o, tokens, layer = options, rows * options.context, _of_layer(options, e)
    kept = o.layers * (o.width * e if o.gradient_checkpointing else layer)
    kept += layer * (2 if o.gradient_checkpointing else 1)  # the backward's own, of the layer that it is at
    return tokens * (kept + 6 * o.width * e) + _mask(o, rows, e, device) + _head(tokens, vocab_size, device)


def _activations_on_cuda(o: TrainConfig, vocab_size: int, rows: int, e: int) -> int:
    """Return what `activations` does, from what autograd saves there, counted tensor by tensor.

    torch's allocator uses again at once what was freed: so the head's tables and a layer's own do not add up.
    """
    tokens, path = rows * o.context, _path(o, "cuda")
    queries, keys = o.heads * o.head_width, o.kv_heads * o.head_width
    of_attention = 3 * queries + 3 * keys if path == "varlen" else 5 * queries + keys
    layer = (4 * o.width + of_attention + (3 if o.compile else 4) * o.feed_forward) * e
    layer += 2 * (2 * o.heads + o.kv_heads + 2) * 4  # of norms and softmax, in fp32
    layer += 2 * o.width if o.dropout else 0  # a byte each
    own = (2 * o.feed_forward + 2 * o.width) * e
    if o.gradient_checkpointing:
        own += layer
    kept = o.layers * (o.width * e if o.gradient_checkpointing else layer)
    ends = 6 * o.width * e  # what the embedding gives and the head takes
    head = _head(tokens, vocab_size, "cuda", e if o.compile and not o.frequent_tokens else 0)
    return tokens * (kept + ends) + _mask(o, rows, e, "cuda") + max(head, tokens * own)


def _path(o: TrainConfig, device: str) -> str:
    """Return the attention path: as model/attention.py chooses it."""
    if o.attention != "auto":
        return o.attention
    capability = this_machine().capability if device == "cuda" else None
    unfit = misfit(device, o.precision, o.head_width, capability)
    if o.packing == "one" and (unfit or prefers_cudnn(o.precision, o.head_width, capability)):
        return "flash"
    return "masked" if unfit else "varlen"


def _mask(o: TrainConfig, rows: int, e: int, device: str) -> int:
    return rows * o.context**2 * e if _path(o, device) == "masked" else 0


def _head(tokens: int, vocab_size: int, device: str, compiled: int = 0) -> int:
    """Return the head's logits, their probabilities and one more, in fp32, of the rows that are held at once.

    Args:
        compiled: bytes of a weight where the loss is compiled, which holds logits and gradient in its type.
    """
    rows = min(tokens, rows_at_once(vocab_size, device, compiled=bool(compiled)))
    return rows * vocab_size * (2 * compiled or 3 * 4)


def _of_layer(options: TrainConfig, e: int) -> int:
    """Return the bytes that a layer keeps of a position."""
    o = options
    queries, keys = o.heads * o.head_width, o.kv_heads * o.head_width
    return (4 * o.width + 6 * queries + 3 * keys + 4 * o.feed_forward) * e


def device_memory(options: TrainConfig, device: str) -> int:
    """Return the bytes that one rank may plan with; 0 where nobody can say.

    Of the machine's memory (or the container's limit) the ranks get equal shares. What happens to be free now
    does not matter: a decision that rests on this must not depend on what else runs.
    """
    if options.memory_gib:
        return int(options.memory_gib * 2**30) // (1 if device == "cuda" else options.ranks)
    if device == "cuda":
        return this_machine().memory
    return machine_memory() // options.ranks


def room(options: TrainConfig, device: str) -> float:
    """Return the bytes that a rank may fill, 0 where nobody can say: of a GPU at most `--memory-share`."""
    share = options.memory_share if device == "cuda" else 1.0
    return FREE_SHARE * share * device_memory(options, device)


def micro_batches(options: TrainConfig) -> list[int]:
    """Return the micro batches that divide a rank's rows, largest first."""
    rows = options.rank_rows
    small = [n for n in range(1, math.isqrt(rows) + 1) if rows % n == 0]
    return sorted({*small, *(rows // n for n in small)}, reverse=True)


def largest_that_fits(options: TrainConfig, vocab_size: int, device: str) -> int:
    """By the estimate; 1 where not even that fits (`check` then refuses it)."""
    limit = room(options, device)
    for rows in micro_batches(options):
        if not limit or estimate(options, vocab_size, device, rows).total <= limit:
            return rows
    return 1


def check(options: TrainConfig, vocab_size: int, device: str) -> Estimate:
    """Return the estimate, if it fits.

    Raises:
        EnvironmentFault: it does not; how much there is, and what would fit.
    """
    found, limit = estimate(options, vocab_size, device), room(options, device)
    if not limit or found.total <= limit:
        return found
    raise EnvironmentFault(
        f"this training needs {found}, and there are {human_bytes(int(limit))} to plan with; "
        f"{_advice(options, vocab_size, device, limit)}"
    )


def _advice(options: TrainConfig, vocab_size: int, device: str, limit: float) -> str:
    """Return the options that would make it fit, the cheapest first."""

    def fits(**changes: object) -> bool:
        other = dataclasses.replace(options, **changes)  # type: ignore[arg-type]
        rows = largest_that_fits(other, vocab_size, device)
        return estimate(other, vocab_size, device, rows).total <= limit

    rows = largest_that_fits(options, vocab_size, device)
    if fits():
        return f"--micro-batch {rows} would fit"
    is_deepspeed, goes_on = options.backend == "deepspeed", _goes_on(options)
    ways: list[tuple[str, dict[str, object], bool]] = [
        ("--gradient-checkpointing", {"gradient_checkpointing": True}, True),
        ("--zero-stage 3", {"zero_stage": 3}, is_deepspeed and options.world_size > 1),
        ("--offload optimizer", {"offload": "optimizer"}, is_deepspeed and device == "cuda"),
        ("--lora-rank 16", {"lora_rank": 16, "optimizer": "adamw"}, goes_on and not options.lora_rank),
    ]
    so_far: dict[str, object] = {}
    parts = ["--micro-batch 1"]
    for text, change, is_possible in ways:
        if is_possible:
            so_far.update(change)
            parts.append(text)
            if fits(**so_far):
                return " with ".join([parts[0], " and ".join(parts[1:])]) + " would fit"
    return "nothing here would make it fit: take a smaller --size or --context, or more memory"
