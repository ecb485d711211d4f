"""What `yanmo status --serve` says on /metrics: what no pod can say, as it is there when no pod is."""

from __future__ import annotations

from yanmo.stage.metric import GENRE, Label, Metric
from yanmo_pipelines.cluster.status.serving.nights import NIGHT_STATES

STAGES = ("curate", "balance", "tokenize", "train", "evaluate", "promote")
OUTCOMES = ("promoted", "not promoted", "not valid")
"""As in promote/metrics.py; a test compares both."""
PARTS = ("cas", "runs", "pointers", "nights", "sources", "kfp", "other")
"""Folders of a store, and what else lies in it."""
_CHANNEL = Label(name="channel", about="series of runs, by its name", zh="频道名", most=32)
_STAGE = Label(name="stage", values=STAGES)
_NIGHT = Label(name="state", values=NIGHT_STATES)
_PERIOD = Label(name="period", values=("night", "month"))
_PART = Label(name="part", values=PARTS)

METRICS = (
    Metric(
        room="status",
        name="store_up",
        help="1 where the store answered the last look at it, and not long ago; else 0",
        zh="最近一次查看时存储有应答，且为时不久，则为 1；否则为 0",
        alert="YanmoStoreUnseen",
    ),
    Metric(
        room="status",
        name="look_age_seconds",
        help="Seconds since the store was last seen whole; it grows while it does not answer",
        zh="距上次完整看到存储的秒数；存储不应答时不断增长",
    ),
    Metric(
        room="status",
        name="look_seconds",
        help="How long the last look took",
        zh="最近一次查看所用的时间",
        still="gone",
    ),
    Metric(
        room="status",
        name="looks",
        kind="counter",
        help="Looks at the store, by how they went",
        zh="对存储的查看次数，按结果",
        labels=(Label(name="result", values=("seen", "failed")),),
    ),
    Metric(
        room="status",
        name="damaged",
        help="Files below pointers/ that cannot be read, or name an output that is damaged or gone",
        zh="pointers/ 下无法读取、或所指输出已损坏或不存在的文件数",
        still="gone",
    ),
    Metric(
        room="channel",
        name="last_success_timestamp_seconds",
        help="Unix time at which a run of the channel last made or found the stage's output",
        zh="该频道的某次运行最近一次做成或找到该阶段输出的 Unix 时间",
        labels=(_CHANNEL, _STAGE),
    ),
    Metric(
        room="channel",
        name="last_success_age_seconds",
        help="Seconds since then; it grows, also while the store does not answer",
        zh="距那时的秒数；不断增长，存储不应答时也一样",
        labels=(_CHANNEL, _STAGE),
    ),
    Metric(
        room="channel",
        name="champion_since_timestamp_seconds",
        help="Unix time since which the channel has its champion",
        zh="频道现任冠军晋升的 Unix 时间",
        labels=(_CHANNEL,),
    ),
    Metric(
        room="channel",
        name="champion_bits_per_character",
        help="Bits per character of the champion, by genre",
        zh="冠军的每字符比特数，按体裁",
        labels=(_CHANNEL, GENRE),
        still="gone",
    ),
    Metric(
        room="channel",
        name="champion_mean_bits_per_character",
        help="Bits per character of the champion, mean over genres",
        zh="冠军的每字符比特数，各体裁的平均",
        labels=(_CHANNEL,),
        still="gone",
    ),
    Metric(
        room="channel",
        name="champion_changes",
        kind="counter",
        help="Promotions and rollbacks in the channel's history",
        zh="频道历史中的晋升与回退次数",
        labels=(_CHANNEL,),
    ),
    Metric(
        room="channel",
        name="verdict",
        help="1 for what the channel's newest verdict says, 0 for the rest",
        zh="频道最新判定的结论为 1，其余为 0",
        labels=(_CHANNEL, Label(name="outcome", values=OUTCOMES)),
        still="gone",
    ),
    Metric(
        room="channel",
        name="verdicts",
        help="Verdicts of the runs that the channel has a record of, by what they say",
        zh="频道留有记录的各次运行的判定数，按结论",
        labels=(_CHANNEL, Label(name="outcome", values=OUTCOMES)),
        still="gone",
    ),
    Metric(
        room="night",
        name="state",
        help="1 for how the newest night stands that is due, 0 for the rest",
        zh="最近一个应有之夜的状况为 1，其余为 0",
        labels=(_CHANNEL, _NIGHT),
        alert="YanmoMissedNight",
    ),
    Metric(
        room="night",
        name="due_timestamp_seconds",
        help="Unix time at which that night was due",
        zh="该夜应当开始的 Unix 时间",
        labels=(_CHANNEL,),
    ),
    Metric(
        room="night",
        name="next_timestamp_seconds",
        help="Unix time at which the next night is due",
        zh="下一夜应当开始的 Unix 时间",
        labels=(_CHANNEL,),
    ),
    Metric(
        room="channel",
        name="nights",
        help="Nights due, of the newest 14 since the channel began, by how they went",
        zh="频道开始以来最近 14 个应有之夜的数目，按状况",
        labels=(_CHANNEL, _NIGHT),
    ),
    Metric(
        room="work",
        name="running",
        help="Outputs that are being made now",
        zh="此刻正在制作的输出数",
        labels=(_CHANNEL, _STAGE),
        still="gone",
    ),
    Metric(
        room="work",
        name="running_seconds",
        help="How long the oldest of these has been worked on by its present process",
        zh="其中最久者由现进程制作了多长时间",
        labels=(_CHANNEL, _STAGE),
        still="gone",
    ),
    Metric(
        room="work",
        name="left",
        help="Outputs whose work was saved, and that nobody works on",
        zh="工作已保存而无人继续的输出数",
        labels=(_STAGE,),
        still="gone",
    ),
    Metric(
        room="work",
        name="failed",
        help="Of these, those whose last word is a failure: `yanmo status` shows its card",
        zh="其中以失败告终者；`yanmo status` 显示其卡片",
        labels=(_STAGE,),
        still="gone",
    ),
    Metric(
        room="store",
        name="size_bytes",
        help="What the store holds, when it was last counted",
        zh="上次清点时存储中的数据量",
        labels=(_PART,),
    ),
    Metric(
        room="store",
        name="objects",
        help="Objects in the store, when it was last counted",
        zh="上次清点时存储中的对象数",
        labels=(_PART,),
    ),
    Metric(
        room="store",
        name="size_age_seconds",
        help="Seconds since the store was last counted",
        zh="距上次清点存储的秒数",
    ),
)
"""In the order of the reference page."""
