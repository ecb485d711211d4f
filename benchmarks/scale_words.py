"""The words of docs/scale.md and docs/scale.zh.md, around the tables of scale_tables.py."""

from __future__ import annotations

KINDS = {
    "en": ("measured here", "data sheet", "published", "assumed"),
    "zh": ("在此测得", "产品手册", "公开发表", "假定"),
}
CONSTANT_NAMES = {
    "en": {
        "peak_flops": "peak, TFLOP/s",
        "full_share": "share of it that a very wide model reaches",
        "half_width": "width that reaches half of that share",
        "memory_gib": "memory, GiB",
        "memory_bandwidth": "its bandwidth, TB/s",
        "link_bandwidth": "to the other GPUs of the node, GB/s",
        "network_bandwidth": "of a node to the others, GB/s",
        "link_share": "share of both that collectives reach",
        "call_latency": "a collective, us",
        "link_latency": "a hop inside a node, us",
        "network_latency": "a hop between nodes, us",
        "exchange_latency": "a hop of the flags after a step, us",
        "step_overhead": "work of a step that grows with nothing, ms",
        "fetch_overhead": "work for each tensor and forward under ZeRO-3, ms",
        "host_memory": "memory of a node, GB",
        "host_bandwidth": "a GPU to the node's memory, GB/s",
        "store_bandwidth": "store, GB/s",
        "watts": "power of a GPU, W",
        "failure_hours": "hours of a GPU between failures",
        "restart_seconds": "seconds that a failure costs, besides lost steps",
    },
    "zh": {
        "peak_flops": "峰值，TFLOP/s",
        "full_share": "很宽的模型能达到的份额",
        "half_width": "达到其一半的宽度",
        "memory_gib": "显存，GiB",
        "memory_bandwidth": "显存带宽，TB/s",
        "link_bandwidth": "到同节点其他 GPU，GB/s",
        "network_bandwidth": "一个节点到其他节点，GB/s",
        "link_share": "集合通信在两者上达到的份额",
        "call_latency": "一次集合通信，微秒",
        "link_latency": "节点内一跳，微秒",
        "network_latency": "节点间一跳，微秒",
        "exchange_latency": "每步之后标志的一跳，微秒",
        "step_overhead": "一步中不随任何量增长的工作，毫秒",
        "fetch_overhead": "ZeRO-3 每次前向为每个张量的工作，毫秒",
        "host_memory": "节点内存，GB",
        "host_bandwidth": "GPU 到节点内存，GB/s",
        "store_bandwidth": "存储，GB/s",
        "watts": "GPU 功率，W",
        "failure_hours": "一块 GPU 两次故障间的小时数",
        "restart_seconds": "一次故障的秒数，丢失的步数另计",
    },
}
HEADS: dict[str, dict[str, tuple[str, ...]]] = {
    "en": {
        "constants": ("constant", "H100", "H200", "A100", "where from"),
        "holding": (
            "B parameters",
            "80 GB, ZeRO-1",
            "ZeRO-2",
            "ZeRO-3",
            "141 GB, ZeRO-1",
            "ZeRO-2",
            "ZeRO-3",
        ),
        "times": ("B parameters", "B tokens", "8 GPUs", "64", "256", "800"),
        "stops": ("B parameters", "rows", "400 GB/s", "100 GB/s", "12.5 GB/s"),
        "bills": (
            "B parameters",
            "GPUs",
            "time",
            "GPU-hours",
            "MWh",
            "cost",
            "GPU memory, GiB",
            "node memory, GB",
        ),
        "wires": ("", "paper, 1 forward", "paper, 8", "ours, 1 forward", "ours, 8"),
        "published": (
            "model",
            "GPUs",
            "context, rows",
            "published",
            "predicted tokens/s of a GPU",
            "ratio",
            "source",
        ),
        "here": ("cell", "1 rank", "2 ranks", "4 ranks"),
    },
    "zh": {
        "constants": ("常数", "H100", "H200", "A100", "来源"),
        "holding": (
            "参数（B）",
            "80 GB，ZeRO-1",
            "ZeRO-2",
            "ZeRO-3",
            "141 GB，ZeRO-1",
            "ZeRO-2",
            "ZeRO-3",
        ),
        "times": ("参数（B）", "词元（B）", "8 块 GPU", "64", "256", "800"),
        "stops": ("参数（B）", "行数", "400 GB/s", "100 GB/s", "12.5 GB/s"),
        "bills": (
            "参数（B）",
            "GPU",
            "时间",
            "GPU 小时",
            "MWh",
            "费用",
            "显存，GiB",
            "节点内存，GB",
        ),
        "wires": ("", "论文，1 次前向", "论文，8 次", "我们，1 次前向", "我们，8 次"),
        "published": (
            "模型",
            "GPU",
            "上下文、行数",
            "公布的",
            "预测：每块 GPU 的词元/秒",
            "比值",
            "出处",
        ),
        "here": ("情形", "1 个进程", "2 个进程", "4 个进程"),
    },
}
WORDS: dict[str, dict[str, str]] = {
    "en": {
        "hours": "GPU-hours",
        "speed": "tokens/s of a GPU",
        "fitted": "fitted",
        "to": " to ",
        "counted": """\
Counted in real steps of two ranks with two forwards in bf16, 15.7 M parameters: {counted} bytes a
parameter under ZeRO-1, 2 and 3; the model says {modelled}.

""",
        "not_measured": "Not measured yet: `python benchmarks/scale.py --measure`.",
        "here": """\
Seconds of a step, measured / predicted, on the {cores} cores of an {processor}: ranks of one thread,
DeepSpeed over gloo on loopback, fp32, the same batch for 1, 2 and 4 ranks (on 2 cores four ranks only
add communication). `narrow` has 4.3 M parameters, `wide` 15.7 M; the number is the context. Each
figure is the median of the fastest third of {repeats} steps; all groups of ranks
stay alive and take turns in random order. Other work ran beside: load {load}, {begun}, commit {commit}.

{table}

Fitted to the four cells that say so: {gflops} GFLOP/s, {kept} GB/s of activations, {memory} GB/s of
optimizer states. Measured apart: a rank computes {crowding} times as long while the other core is busy; a
collective of two ranks takes {call} ms and {link} GB/s, the exchange of flags {exchange} ms. A step's own
overhead and ZeRO-3's work for each tensor ({overhead} and {fetch} ms by the fit) are below what this load
lets one see: those of the constants below were measured before, as CPU time.

The {held} other cells are held out: half of the predictions are within {middle} %, the worst is off by
{worst} %. The narrow model is met within {narrow} % at the median, the wide one is {wide} % too fast on
2 and 4 ranks. What the model leaves out there is that DeepSpeed copies the whole gradient into and
out of its buckets, some 32 bytes a parameter by its code: on a GPU 2 % of a step of 7 billion
parameters. Of {sends}
collectives of 4 ranks, predicted from those of 2, half are within {middle_sends} %, the worst is off by
{worst_sends} %: all of them are slower than predicted, as four processes wait for two cores at each
hop.""",
    },
    "zh": {
        "hours": "GPU 小时",
        "speed": "词元/秒（每块 GPU）",
        "fitted": "用于拟合",
        "to": " 至 ",
        "counted": """\
在两个进程、两次前向、bf16、15.7 M 参数的真实的步中数得：ZeRO-1、2、3 每个参数 {counted} 字节；模型说
{modelled}。

""",
        "not_measured": "尚未测量：`python benchmarks/scale.py --measure`。",
        "here": """\
一步的秒数，实测 / 预测。机器是 {processor} 的 {cores} 个核；每个进程一个线程，DeepSpeed 经回环上的
gloo，fp32，1、2、4 个进程用同样的批次（2 个核上四个进程只多了通信）。`narrow` 有 4.3 M 参数，
`wide` 有 15.7 M；数字是上下
文长度。每个数字是 {repeats} 步中最快的
三分之一的中位数；各组进程一直活着，按随机次序轮流。旁边有别的工作：负载 {load}，{begun}，提交
{commit}。

{table}

标明的四格用于拟合：{gflops} GFLOP/s、激活 {kept} GB/s、优化器状态 {memory} GB/s。另行测得：另一个核忙
时，一个进程的计算时间是 {crowding} 倍；两个进程的一次集合通信要 {call} 毫秒，带宽 {link} GB/s；交换标志
{exchange} 毫秒。一步自身的开销，以及 ZeRO-3 为每个张量的工作（拟合得 {overhead} 和 {fetch} 毫秒），在这
样的负载下看不出来：下面常数表里的数值是先前按 CPU 时间测的。

其余 {held} 格未参与拟合：一半的预测误差在 {middle} % 以内，最大 {worst} %。窄模型的误差中位数是
{narrow} %；宽模型在 2 和 4 个进程上预测得快了 {wide} %。模型没有计入的是：DeepSpeed 在那里把整个梯度复
制进出它的桶，按其代码每个参数约 32 字节；在 GPU 上是 7 B 参数一步的 2 %。4 个进程的 {sends}
次集合通信由 2 个进程的
预测而来，一半误差在 {middle_sends} % 以内，最大 {worst_sends} %：全都比预测慢，因为四个进程每一跳都要等
两个核。""",
    },
}
_COMMANDS = """    python benchmarks/scale.py --parameters 7e9 --gpus 8,64,256
    python benchmarks/scale.py --parameters 7e9 --gpus 64 --network 12.5 --tokens 1e12 --gpu-hour-price 2
"""
PAGE = {
    "en": """# Scale: time, memory, network and cost of many GPUs

What a training of 0.1 to 70 billion parameters takes on 8 to 800 GPUs, before anybody rents them.
**These are predictions**: no training of ours has run on a GPU or on a second node. The model is
checked in two ways, below: with 1, 2 and 4 ranks on a CPU, and with published trainings.
[中文](scale.zh.md)

"""
    + _COMMANDS
    + """
prints this for your case: of ZeRO-1, 2 and 3, with and without recomputation, the simplest that fits
and is within 3 % of the fastest.
Every constant is an option (`--network`, `--memory`, `--peak`, `--full-share`, `--store`), the price
too: `--gpu-hour-price`. Memory is the estimate that `yanmo train` makes before it starts
([train.md](train.md#memory)), so what the tables call too large is what it refuses. `python
benchmarks/scale.py --docs` writes this page; a test compares.

## In short

- **ZeRO-1** on one node while the model fits: the stages differ little there. Over many nodes it waits
  for its reduction, and **ZeRO-3**, which sends while it computes, is predicted to be faster even
  where ZeRO-1 fits. ZeRO-2 sends gradients at each forward, not once a step: only for a single one.
- **Recomputation** (`--gradient-checkpointing`) costs a third of the computing. Take it when the
  model does not fit with one row, not to have larger micro batches.
- **More GPUs** pay until each has about one row of the batch left. On nodes with less than
  400 GB/s much earlier: see [When to stop](#when-to-stop).
- **Muon at scale**: it puts matrices that are cut between ranks together in every step. On 256
  H100s a model of 7 billion reaches {muon_mfu} of the peak with Muon and {adamw_mfu} with
  `--optimizer adamw`, which the tables use.
- Yanmo holds no more than a node's memory does: see [Limits](#limits).

## What fits

The smallest number of GPUs (a power of two up to 1,024) that holds a model with one row of 4,096
positions per forward: without / with recomputation. Vocabulary 32,768, AdamW, bf16, no validation on
the way; from the estimate of `yanmo train`, with 79.6 GiB (H100) and 139 GiB (H200).

{holding}

## Time

Training on 20 tokens per parameter, on H100s with 400 GB/s between nodes: time, ZeRO stage (Z3r: with
recomputation), share of a step that computes, recomputing included. The batch is GPT-3's for the
size (0.5 M
tokens below 1 billion parameters, 1 M below 5, 2 M below 20; 4 M above): where it has fewer rows
than there are GPUs,
or nothing fits, there is no figure.

{times}

## When to stop

The largest number of GPUs, of 8, 16, 32 ... 512, 800, up to which an added GPU gave at least half of
what one gave before, and the share of a step that then computes, by what a node of 8 H100s has to the
others: eight ports of 400 Gb/s, two, or one of 100.

{stops}

Without a fast network use one node, a larger batch, or recomputation, which makes fewer forwards.

## Cost

On the largest number of GPUs that pays with 400 GB/s, at {price} for a GPU-hour (an example, not an
offer) and with the H100's 700 W as if it always took them. Node memory is what checkpoints and the
export of 8 ranks need; in bold where a node of 2,000 GB has too little.

{bills}

A whole training takes longer than its steps. Published ones took {whole_middle} times what is predicted
for them at the median (below).

## Network

Bytes per parameter that each of 64 ranks sends in a step of the 7 billion, with one forward and with
eight. The paper's figures are 2 bytes a gradient (arXiv 1910.02054, section 7: twice the model, three
times under ZeRO-3). Ours are what DeepSpeed 0.19.8 does under `yanmo train`, seen call by call:
gradients go in fp32, as sums in bf16 would differ; ZeRO-1 and 2 reduce them with a whole all-reduce
and gather the weights after it, while nothing computes.

{wires}

{counted}## Checkpoints, data, failures

- A checkpoint of 7 billion parameters with AdamW has {checkpoint} GB: {checkpoint_seconds} s into a store
  of 5 GB/s, in the background. The training waits only for the copy to the node's memory, each rank
  its own part.
- Data is little: 2 bytes a token (4 above 65,536 tokens of vocabulary), once.
- With 800 GPUs one fails every {between} days (Llama 3's rate). At one checkpoint every 10 minutes that
  costs {failing} % of the time.

## Checked on a CPU

{here}

## Checked against published trainings

Two rows for each GPU fit the share of the peak that it reaches by width; the rest is held out. The ratio
is predicted by published: above 1 the prediction is too fast. Here everything is sent while it is
computed, as these trainings did.

Benchmarks of some steps: {held_out} rows held out, ratios {held_low} to {held_high}, median
{held_middle}. The largest is 2 rows of 2,048 on each GPU, where FSDP's own work shows.

{benchmarks}

Whole trainings, with all that stood still: {whole_low} to {whole_high}, median {whole_middle}. Pythia had
no flash attention; BLOOM, with a pipeline, had bubbles; of Llama's GPUs the number is not published (1,024
taken), and its hours hold more than the steps of one run (Llama 3 8B's would be an MFU of 17 %). **Plan
with half as much time again, and with twice for a first training.**

{wholes}

## Constants

{constants}

The 7 billion's FLOPs per token, as for the [MFU](metrics.md), are 6 for each weight but the embedding's
and 12 x layers x width x context for attention. A step also updates: 44 bytes moved for each parameter
with AdamW, 60 with Muon and its five rounds of products.

## Limits

- Nothing of this was measured on GPUs. The H200's share of its peak is taken from the H100.
- ZeRO only: Yanmo has no tensor or pipeline parallelism. Below one row for each GPU it cannot use more.
- The export and the start put a whole model into each rank's part of the node's memory: 8 ranks of 70
  billion parameters need 4,500 GB. Up to about 30 billion a node of 2,000 GB suffices.
- Under ZeRO-3 a validation needs a whole model on each GPU (`--valid-characters 0` has none), and Muon
  needs 8 bytes for each weight of the matrices; with more ranks than matrices each computes them all.
- Nodes share nothing else and none is slow: no congestion, no stragglers.
""",
    "zh": """# 规模：许多 GPU 的时间、显存、网络与费用

在租用之前，先知道 0.1 至 70 B（十亿）参数的训练在 8 至 800 块 GPU 上要多少。**这些是预测**：我们还
没有在 GPU 上、也没有在第二个节点上训练过。模型以两种方式检验，见下文：CPU 上的 1、2、4 个进程，以及
公开发表的训练。[English](scale.md)

"""
    + _COMMANDS
    + """
打印您自己情形的表：在 ZeRO-1、2、3 之中，重算激活或不重算，取放得下、
且与最快者相差 3 % 以内的最简单者。每个常数都是选项
（`--network`、`--memory`、`--peak`、`--full-share`、`--store`），价格也是：`--gpu-hour-price`。显存就是
`yanmo train` 开始前的估计（[train.zh.md](train.zh.md#内存)），所以表中说太大的，它就会拒绝。
`python benchmarks/scale.py --docs` 写出本页；有测试比对。

## 简言之

- 一个节点上放得下就用 **ZeRO-1**：各级别在那里相差不大。跨许多节点时它要等归约，而 **ZeRO-3** 边算边
  发，所以即使 ZeRO-1 放得下，也预测 ZeRO-3 更快。ZeRO-2 每次前向都发送梯度，而不是每步一次：只在每步
  一次前向时使用。
- **重算**（`--gradient-checkpointing`）多花三分之一的计算。一行也放不下时才用，不要为了更大的微批次。
- **更多 GPU** 值得加到每块大约只剩批次的一行。节点间不足 400 GB/s 时要早得多：见
  [何时停止](#何时停止)。
- **大规模下的 Muon**：它每步都要把切在各进程之间的矩阵拼起来。在 256 块 H100 上，7 B 的模型用 Muon
  达到峰值的 {muon_mfu}，用 `--optimizer adamw` 达到 {adamw_mfu}；下面各表用后者。
- Yanmo 能装下的不超过一个节点的内存：见[限制](#限制)。

## 放得下什么

每次前向一行 4,096 个位置时，能装下模型的最少 GPU 数（2 的幂，至 1,024）：不重算 / 重算。词表
32,768，AdamW，bf16，中途不验证；出自 `yanmo train` 的估计，显存 79.6 GiB（H100）和 139 GiB（H200）。

{holding}

## 时间

每个参数训练 20 个词元，H100，节点间 400 GB/s：时间、ZeRO 级别（Z3r：
重算）、一步中计算所占的份额（含重算）。
批次取 GPT-3 同等大小的（1 B 参数以下 0.5 M 词元，5 B 以下 1 M，20 B 以下 2 M；以上 4 M）：行数少于
GPU 数，或放不下时，没有数字。

{times}

## 何时停止

在 8、16、32……512、800 之中，新加的 GPU 至少还给出先前每块的一半时的最大 GPU 数，以及那时一步中计算
所占的份额；按 8 块 H100 的节点到其他节点的带宽：八个 400 Gb/s 的口、两个，或一个 100 的。

{stops}

没有快的网络时，请用一个节点、更大的批次，或重算（前向次数更少）。

## 费用

在 400 GB/s 时值得的最大 GPU 数上，每 GPU 小时 {price}（只是例子，不是报价），并当作 H100 总是用满
700 W。节点内存是 8 个进程的检查点和导出所需；2,000 GB 的节点不够时用粗体。

{bills}

整个训练比它的各步更久。公开发表的训练，中位数是预测的 {whole_middle} 倍（见下）。

## 网络

7 B 的一步中，64 个进程里每个进程为每个参数发送的字节数，一次前向和八次前向。论文的数字是每个梯度 2
字节（arXiv 1910.02054，第 7 节：模型的两倍，ZeRO-3 三倍）。我们的是 DeepSpeed 0.19.8 在
`yanmo train` 之下逐次调用所见：梯度以 fp32 发送，因为 bf16 的和会不同；ZeRO-1 和 2 用完整的
all-reduce 归约，之后才收集权重，其间不计算。

{wires}

{counted}## 检查点、数据、故障

- 7 B 参数加 AdamW 的检查点有 {checkpoint} GB：写入 5 GB/s 的存储要 {checkpoint_seconds} 秒，在后台进
  行。训练只等到复制进节点内存为止，每个进程复制自己的一份。
- 数据很少：每个词元 2 字节（词表超过 65,536 时 4 字节），一次。
- 800 块 GPU 每 {between} 天坏一块（Llama 3 的频率）。每 10 分钟一个检查点时，这花去 {failing} % 的时间。

## 在 CPU 上检验

{here}

## 与公开发表的训练比较

每种 GPU 用两行拟合它按宽度达到峰值的份额；其余都不参与拟合。比值是预测除以公布：大于 1 就是预测得太
快。这里边算边发，那些训练也是如此。

若干步的基准测试：{held_out} 行未参与拟合，比值 {held_low} 至 {held_high}，中位数 {held_middle}。最大
的一个是每块 GPU 上 2 行 2,048，那里看得出 FSDP 自己的工作。

{benchmarks}

整个训练，包括一切停顿：{whole_low} 至 {whole_high}，中位数 {whole_middle}。Pythia 没有 flash
attention；BLOOM 有流水线的气泡；Llama 的 GPU 数没有公布（取 1,024），它的小时数也不止一次训练的各步
（Llama 3 8B 的 MFU 将只有 17 %）。**请按多一半的时间来计划，第一次训练按两倍。**

{wholes}

## 常数

{constants}

7 B 每词元的浮点次数与 [MFU](metrics.zh.md) 的相同：除嵌入外每个权重 6 次，注意力再加 12 x 层数 x 宽度
x 上下文。一步还要更新：AdamW 每个参数搬动 44 字节，Muon 60 字节，外加五轮矩阵乘。

## 限制

- 这些都没有在 GPU 上测过。H200 达到峰值的份额取自 H100。
- 只有 ZeRO：Yanmo 没有张量并行或流水线并行。每块 GPU 不到一行时，不能再用更多。
- 导出和开始时，每个进程都把整个模型放进节点内存：70 B 参数的 8 个进程要 4,500 GB。2,000 GB 的节点大约
  够 30 B。
- ZeRO-3 下，验证要在每块 GPU 上放一个完整的模型（`--valid-characters 0` 不验证）；Muon 要为各矩阵的每
  个权重用 8 字节，进程数多于矩阵数时每个进程都要全部算一遍。
- 节点之间没有别的共享，也没有慢的节点：没有拥塞，没有掉队者。
""",
}
