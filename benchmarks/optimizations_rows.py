"""The rows of results/optimizations.json: each as options of `yanmo train` with it and without it."""

from __future__ import annotations

from dataclasses import dataclass

from bench.declared import Words

BASE = (
    *("--layers=2", "--width=96", "--heads=3", "--head-width=32", "--feed-forward=256", "--context=64"),
    *("--batch-rows=16", "--warmup-steps=10", "--ranks=1", "--threads=1", "--backend=torch"),
    *("--monitor=off", "--log-every=5", "--checkpoint-seconds=0", "--valid-points=0", "--precision=fp32"),
)
"""Both sides of a row train this, but for its own options: small, so that a row takes a few minutes."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """One optimization."""

    name: str
    """For --only, and in the results."""
    title: Words
    on: tuple[str, ...]
    off: tuple[str, ...] = ()
    avoid: Words
    """When not to use it."""
    longer: int = 1
    """Steps with it, as a multiple of those without it."""


ROWS = (
    Row(
        name="muon",
        title=("Muon for the layers' matrices", "层内矩阵用 Muon"),
        on=("--optimizer=muon",),
        off=("--optimizer=adamw", "--adam-learning-rate=0.003", "--head-learning-rate=0.003"),
        avoid=(
            "to go on from a model that AdamW trained, with few steps",
            "接着训练由 AdamW 训练的模型，且步数很少时",
        ),
    ),
    Row(
        name="bigram-start",
        title=("first weights from bigram statistics", "由二元统计得出初始权重"),
        on=("--start=bigram",),
        off=("--start=random",),
        avoid=("with a tied head, where it is not possible", "词嵌入与输出头共用权重时（不可用）"),
    ),
    Row(
        name="frequent-tokens",
        title=("logits of frequent tokens alone", "只算常见词元的 logits"),
        on=("--frequent-tokens=2048",),
        off=("--frequent-tokens=0",),
        avoid=(
            "small vocabularies, wide models: the head is not what costs",
            "词表小或模型宽时：开销不在输出头",
        ),
    ),
    Row(
        name="packing",
        title=(
            "packing whole documents into rows, beside one document in a row, padded to the longest of its "
            "micro batch (dynamic padding)",
            "整篇装入一行，对照每行一篇、填充到微批中最长的一篇（动态填充）",
        ),
        on=("--packing=best-fit",),
        off=("--packing=one",),
        avoid=("never: documents of a row do not see each other", "没有：同一行的各篇互不可见"),
    ),
    Row(
        name="packing-stream",
        title=("packing whole documents, beside one stream cut in rows", "整篇装入，对照把文字连成一串再切"),
        on=("--packing=best-fit",),
        off=("--packing=concat",),
        avoid=(
            "texts far longer than the context, which are cut either way",
            "文档远长于上下文时（总要切断）",
        ),
    ),
    Row(
        name="context",
        title=("a context of 128 tokens, with half the rows", "上下文 128，行数减半"),
        on=("--context=128", "--batch-rows=8"),
        avoid=("verse, whose texts are shorter than 64 tokens", "诗词：每篇不足 64 个词元"),
    ),
    Row(
        name="accumulation",
        title=("gradient accumulation over four forwards", "梯度累积（四次前向）"),
        on=("--micro-batch=4",),
        off=("--micro-batch=16",),
        avoid=("where the batch fits: it is slower", "整批装得下时：更慢"),
    ),
    Row(
        name="checkpointing",
        title=("gradient checkpointing", "梯度检查点"),
        on=("--gradient-checkpointing=true",),
        avoid=(
            "where the model fits: a smaller micro batch costs less",
            "模型装得下时：减小 micro-batch 更便宜",
        ),
    ),
    Row(
        name="bf16",
        title=("bf16 instead of fp32", "bf16 代替 fp32"),
        on=("--precision=bf16",),
        avoid=(
            "processors without avx512_bf16 or AMX, which emulate it",
            "没有 avx512_bf16 或 AMX 的处理器（只能模拟）",
        ),
    ),
    Row(
        name="fp16",
        title=("fp16 with loss scaling instead of fp32", "fp16（带损失缩放）代替 fp32"),
        on=("--precision=fp16",),
        avoid=(
            "wherever there is bf16, which needs no scaling; processors, which emulate it",
            "有 bf16 的设备（bf16 不需缩放）；处理器（只能模拟）",
        ),
    ),
    Row(
        name="compile",
        title=("torch.compile of the layers", "用 torch.compile 编译各层"),
        on=("--compile=true",),
        avoid=("short trainings: compiling takes a minute", "短的训练：编译本身要一分钟"),
    ),
    Row(
        name="deepspeed",
        title=("DeepSpeed's engine beside torch's", "DeepSpeed 引擎，对照 torch"),
        on=("--backend=deepspeed",),
        off=("--backend=torch",),
        avoid=("one device that holds the model", "一个设备装得下模型时"),
    ),
    Row(
        name="ranks",
        title=(
            "two ranks of one thread, beside one rank of two threads",
            "两个进程各一线程，对照一个进程两线程",
        ),
        on=("--ranks=2", "--threads=1"),
        off=("--ranks=1", "--threads=2"),
        avoid=(
            "large models on few cores: each rank holds the model",
            "核少而模型大时：每个进程各有一份模型",
        ),
    ),
    Row(
        name="zero-1",
        title=(
            "ZeRO stage 1 beside plain data parallel (stage 0, torch alone), two ranks",
            "ZeRO 1 对照普通数据并行（ZeRO 0，只用 torch），两个进程",
        ),
        on=("--backend=deepspeed", "--ranks=2", "--zero-stage=1"),
        off=("--backend=torch", "--ranks=2"),
        avoid=("where every rank holds the optimizer's states", "每个进程都装得下优化器状态时"),
    ),
    Row(
        name="zero-2",
        title=("ZeRO stage 2 beside stage 1, two ranks", "ZeRO 2 对照 ZeRO 1，两个进程"),
        on=("--backend=deepspeed", "--ranks=2", "--zero-stage=2"),
        off=("--backend=deepspeed", "--ranks=2", "--zero-stage=1"),
        avoid=("where stage 1 fits", "ZeRO 1 装得下时"),
    ),
    Row(
        name="zero-3",
        title=("ZeRO stage 3 beside stage 1, two ranks", "ZeRO 3 对照 ZeRO 1，两个进程"),
        on=("--backend=deepspeed", "--ranks=2", "--zero-stage=3"),
        off=("--backend=deepspeed", "--ranks=2", "--zero-stage=1"),
        avoid=("where stage 1 or 2 fits", "ZeRO 1 或 2 装得下时"),
    ),
    Row(
        name="prefetch",
        title=("the next batch made by a thread during the step", "由线程在当前步中准备下一批"),
        on=("--prefetch-batches=1",),
        off=("--prefetch-batches=0",),
        avoid=("never: it takes one batch of memory", "没有：只占一批的内存"),
    ),
    Row(
        name="cosine",
        title=("cosine schedule beside linear", "余弦学习率，对照线性"),
        on=("--schedule=cosine",),
        off=("--schedule=linear",),
        avoid=(
            "linear to 0 is at least as good (arXiv 2502.15938)",
            "线性降到 0 至少一样好（arXiv 2502.15938）",
        ),
    ),
    Row(
        name="restarts",
        title=("cosine with restarts (SGDR) beside linear", "带重启的余弦（SGDR），对照线性"),
        on=("--schedule=sgdr",),
        off=("--schedule=linear",),
        avoid=("one pass over the text", "文字只过一遍时"),
    ),
    Row(
        name="batch",
        title=("half the batch with twice the steps", "批减半、步数加倍"),
        on=("--batch-rows=8",),
        avoid=("where steps, not tokens, cost time (many GPUs)", "GPU 很多、时间花在步数上时"),
        longer=2,
    ),
    Row(
        name="dropout",
        title=("dropout 0.1", "dropout 0.1"),
        on=("--dropout=0.1",),
        avoid=("less than about one epoch: nothing is overfitted", "不足一轮时：谈不上过拟合"),
    ),
    Row(
        name="weight-decay",
        title=("weight decay 0.1", "权重衰减 0.1"),
        on=("--weight-decay=0.1",),
        avoid=("short trainings", "短的训练"),
    ),
    Row(
        name="token-noise",
        title=("5 % of the input tokens replaced", "替换 5 % 的输入词元"),
        on=("--token-noise=0.05",),
        avoid=(
            "less than several epochs ([prepare-text.md](../how-to/prepare-text.md#does-augmentation-help))",
            "不足数轮时（[prepare-text.zh.md](../how-to/prepare-text.zh.md#数据增强有用吗)）",
        ),
    ),
    Row(
        name="clipping",
        title=("gradient clipping at 1", "梯度裁剪到 1"),
        on=("--clip=1",),
        off=("--clip=0",),
        avoid=("never: it costs next to nothing", "没有：几乎不费时"),
    ),
)
