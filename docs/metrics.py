"""Write docs/reference/metrics.md and docs/reference/metrics.zh.md: every metric, from where it is declared.

    python docs/metrics.py

A test compares the pages with what this writes.
"""

from __future__ import annotations

from pathlib import Path

from yanmo.stage.metric import Label, Metric
from yanmo.stage.shared_metrics import EVERY_STAGE
from yanmo_pipelines.stages import LANGUAGE_MODEL

FOLDER = Path(__file__).parent
HEAD = {
    "en": """# Metrics

A stage serves Prometheus metrics at `/metrics` from its start to its end, also while its workers
are stuck or dead. In a pod it is port 9464 on all addresses; elsewhere a free port of the
loopback (`--metrics-port`, `--metrics-address`). A pod that was scraped stays for one more scrape
at its end, 20 seconds at most (`--metrics-wait-seconds`; 0 elsewhere). The last values lie next
to the stage's output as `metrics.prom`.

- The id of a run is a label of `yanmo_run_info` alone. A query joins it by pod:
  `yanmo_train_loss * on (namespace, pod) group_left (run_id, key) yanmo_run_info`.
- While no step ends, tokens per second and MFU say 0, ages grow, and all else stays as it was.
  Counters count what this process has done.
- MFU is tokens per second times FLOPs per token over the peak of the devices, in bf16 without
  sparsity. FLOPs per token are 6 for each weight of the matrices but the input embedding, and 12
  x layers x width of the heads x context for attention. `--peak-tflops` gives the peak of a card
  that is not known by name.
- GPUs are read by NVML, from the driver alone. Where a DCGM exporter watches them, say
  `--gpu-metrics false` (or `YANMO_GPU_METRICS=false`) and join its metrics by pod; Prometheus
  calls the pod of the training `exported_pod` there:

      label_replace(label_replace(DCGM_FI_DEV_GPU_UTIL, "pod", "$1", "exported_pod", "(.+)"),
        "namespace", "$1", "exported_namespace", "(.+)")
      * on (namespace, pod) group_left (run_id) yanmo_run_info

- The alert that uses a metric is named beside it. Rules for Prometheus:
  [manifests/](../../manifests/README.md#prometheus).

## Pushgateway

A stage that is over within a scrape's interval, or that Prometheus cannot reach, can leave its
final figures at a [Pushgateway](https://github.com/prometheus/pushgateway):

    yanmo curate --pushgateway http://pushgateway:9091

Pushed are the facts of a run that has ended, marked "pushed" in the tables; never what is live,
which a Pushgateway would repeat for ever.

| how the run ended | what is pushed |
|---|---|
| well, with its output handed over | all final figures (PUT), in the place of those of the run before |
| failed, paused, nothing to do | exit code and time of the end (POST); the figures of the last success stay |
| killed (SIGKILL, out of memory), or refused with its options | nothing |

- They stand under `job="yanmo"`, `stage` and `channel`: each run of a stage replaces those of the
  one before. Prometheus scrapes the Pushgateway with `honor_labels: true`.
- The rules of `manifests/` read the last success of promote
  ([missed nights](../tutorials/every-night.md#missed-nights)). A channel whose nights are over:
  delete its groups. To be told of a run that failed: `yanmo_stage_exit_code{stage!=""} > 0`.
- User and password: `YANMO_PUSHGATEWAY_USERNAME` and `YANMO_PUSHGATEWAY_PASSWORD`. In the address
  they are refused.
- A Pushgateway that is away is one warning in the log; the exit code stays what it is.
- In pods: the variable `YANMO_PUSHGATEWAY_URL`, for Jobs in the ConfigMap `yanmo-settings`
  (component [pushgateway](../../manifests/README.md#pushgateway), which also opens the way), or in
  the Secret `yanmo-store`, which tasks in KFP read too: `pushgateway_url`, `pushgateway_username`,
  `pushgateway_password`.

This page is written by `python docs/metrics.py` from what the code declares.""",
    "zh": """# 指标

阶段从开始到结束都在 `/metrics` 上提供 Prometheus 指标，工作进程卡住或死掉时也一样。Pod 里的端口是
9464，在所有地址上；别处是回环地址上的空闲端口（`--metrics-port`、`--metrics-address`）。被抓取过
的 Pod 结束时会再等一次抓取，至多 20 秒（`--metrics-wait-seconds`；别处为 0）。最后的值以
`metrics.prom` 存放在该阶段的输出旁。

- 运行的编号只是 `yanmo_run_info` 的标签。查询时按 Pod 连接：
  `yanmo_train_loss * on (namespace, pod) group_left (run_id, key) yanmo_run_info`。
- 没有一步结束时，每秒词元数和 MFU 为 0，各种时长不断增长，其余保持不变。计数器只计本进程所做的。
- MFU 是每秒词元数乘以每词元的浮点次数，再除以各设备的峰值（bf16，不计稀疏）。每词元的浮点次数是：
  除输入嵌入外的矩阵每个权重 6 次，注意力再加 12 x 层数 x 各头总宽 x 上下文。型号不认得的卡，用
  `--peak-tflops` 给出峰值。
- GPU 由 NVML 直接从驱动读取。若已有 DCGM exporter 监视它们，请设 `--gpu-metrics false`（或
  `YANMO_GPU_METRICS=false`），并按 Pod 连接它的指标；在那里 Prometheus 把训练所在的 Pod 叫作
  `exported_pod`：

      label_replace(label_replace(DCGM_FI_DEV_GPU_UTIL, "pod", "$1", "exported_pod", "(.+)"),
        "namespace", "$1", "exported_namespace", "(.+)")
      * on (namespace, pod) group_left (run_id) yanmo_run_info

- 用到一个指标的告警写在它旁边。Prometheus 的规则见
  [manifests/](../../manifests/README.zh.md#prometheus)。

## Pushgateway

在一次抓取的间隔之内就结束、或 Prometheus 够不到的阶段，可以把最终的数字留在
[Pushgateway](https://github.com/prometheus/pushgateway) 上：

    yanmo curate --pushgateway http://pushgateway:9091

推送的是已结束的运行的事实，表中标有“推送”；正在变化的从不推送，Pushgateway 会把它们永远重复下去。

| 运行怎样结束 | 推送什么 |
|---|---|
| 正常，输出已交出 | 所有最终数字（PUT），取代上一次运行的 |
| 失败、暂停、无事可做 | 退出码和结束时间（POST）；上次成功的数字保留 |
| 被杀（SIGKILL、内存不足），或选项被拒绝 | 什么也不推送 |

- 它们位于 `job="yanmo"`、`stage` 和 `channel` 之下：阶段的每次运行取代上一次的。Prometheus 抓取
  Pushgateway 时用 `honor_labels: true`。
- `manifests/` 的规则读 promote 最近一次成功的时间
  （[错过的夜](../tutorials/every-night.zh.md#错过的夜)）。不再有夜的频道：删除它的各组。想知道失败
  的运行：`yanmo_stage_exit_code{stage!=""} > 0`。
- 用户与密码：`YANMO_PUSHGATEWAY_USERNAME` 和 `YANMO_PUSHGATEWAY_PASSWORD`。写在地址里会被拒绝。
- Pushgateway 不在时，日志中只有一条警告；退出码不变。
- 在 Pod 里：变量 `YANMO_PUSHGATEWAY_URL`；Job 写在 ConfigMap `yanmo-settings` 里（部件
  [pushgateway](../../manifests/README.zh.md#pushgateway) 同时放行），或写在 KFP 的任务也会读的
  Secret `yanmo-store` 里：`pushgateway_url`、`pushgateway_username`、`pushgateway_password`。

本页由 `python docs/metrics.py` 按代码中的声明写成。""",
}
WORDS = {
    "en": {
        "columns": ("metric", "kind", "unit", "what it is", "after the end", "alert"),
        "gauge": "gauge",
        "counter": "counter",
        "every": "Every stage",
        "pushed": "pushed",
        "labels": "Labels",
        "label": ("label", "values"),
        "most": "{about}; at most {most}, then `other`",
    },
    "zh": {
        "columns": ("指标", "类型", "单位", "含义", "结束后", "告警"),
        "gauge": "gauge",
        "counter": "counter",
        "every": "所有阶段",
        "pushed": "推送",
        "labels": "标签",
        "label": ("标签", "取值"),
        "most": "{about}；至多 {most} 个，其余计为 `other`",
    },
}


def name_of(metric: Metric, stage: str) -> str:
    """A metric with its labels, as a query names it."""
    labels = ",".join(label.name for label in metric.labels)
    return metric.family(stage) + (f"{{{labels}}}" if labels else "")


def table(metrics: tuple[Metric, ...], stage: str, language: str) -> str:
    """A line for each metric."""
    words = WORDS[language]
    columns = words["columns"]
    lines = [f"| {' | '.join(columns)} |", "|" + "---|" * len(columns)]
    for metric in metrics:
        cells = [
            f"`{name_of(metric, stage)}`",
            words[metric.kind],
            metric.unit,
            metric.help if language == "en" else metric.zh,
            str(words["pushed"]) if metric.final else "",
            f"`{metric.alert}`" if metric.alert else "",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def labels_of(metrics: list[Metric], language: str) -> str:
    """A line for each label that has something to say."""
    words, found = WORDS[language], dict[str, str]()
    for metric in metrics:
        for label in metric.labels:
            found.setdefault(f"{label.name} {values(label, language)}", label.name)
    lines = [f"| {' | '.join(words['label'])} |", "|---|---|"]
    for key in sorted(found):
        lines.append(f"| `{found[key]}` | {key.removeprefix(found[key] + ' ')} |")
    return "\n".join(lines)


def values(label: Label, language: str) -> str:
    """What a label can be."""
    if label.values:
        return ", ".join(f"`{value}`" for value in label.values)
    about = label.about if language == "en" else label.zh
    return str(WORDS[language]["most"]).format(about=about, most=label.most)


def page(language: str) -> str:
    """The whole page in one language."""
    words = WORDS[language]
    found = [HEAD[language], f"## {words['every']}", table(EVERY_STAGE, "<stage>", language)]
    every = list(EVERY_STAGE)
    for stage in LANGUAGE_MODEL:
        if stage.metrics:
            found += [f"## `{stage.name}`", table(stage.metrics, stage.name, language)]
            every += stage.metrics
    found += [f"## {words['labels']}", labels_of(every, language)]
    return "\n\n".join(found) + "\n"


if __name__ == "__main__":
    for language, name in (("en", "metrics.md"), ("zh", "metrics.zh.md")):
        (FOLDER / "reference" / name).write_text(page(language), encoding="utf-8")
