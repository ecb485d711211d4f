"""Write the tables of docs/reference/metrics.md and metrics.zh.md: every metric, from where it is declared.

    python docs/metrics.py

They stand below `<!-- metrics -->`. A test compares the pages with what this writes.
"""

from __future__ import annotations

from pathlib import Path

from yanmo.stage.declaration import Label, Metric
from yanmo.stage.shared_metrics import EVERY_STAGE
from yanmo_pipelines.stages import LANGUAGE_MODEL

MARK = "<!-- metrics -->"
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


def filled(text: str, language: str) -> str:
    """A page with its tables made again."""
    found = [text.partition(MARK)[0] + MARK]
    found += [f"## {WORDS[language]['every']}", table(EVERY_STAGE, "<stage>", language)]
    every = list(EVERY_STAGE)
    for stage in LANGUAGE_MODEL:
        if stage.metrics:
            found += [f"## `{stage.name}`", table(stage.metrics, stage.name, language)]
            every += stage.metrics
    found += [f"## {WORDS[language]['labels']}", labels_of(every, language)]
    return "\n\n".join(found) + "\n"


if __name__ == "__main__":
    for language, name in (("en", "metrics.md"), ("zh", "metrics.zh.md")):
        path = Path(__file__).parent / "reference" / name
        path.write_text(filled(path.read_text(encoding="utf-8"), language), encoding="utf-8")
