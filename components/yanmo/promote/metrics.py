"""What promote serves on /metrics."""

from __future__ import annotations

from yanmo.stage.metric import GENRE, Label, Metric

OUTCOMES = ("promoted", "not promoted", "not valid")
"""As in gate/verdict.py."""
_MODEL = Label(name="model", values=("challenger", "champion"))

METRICS = (
    Metric(
        name="verdict",
        help="1 for what the verdict says, 0 for the rest",
        zh="判定的结论为 1，其余为 0",
        labels=(Label(name="outcome", values=OUTCOMES),),
        final=True,
    ),
    Metric(
        name="mean_bits_per_character",
        help="Bits per character, mean over genres",
        zh="每字符比特数，各体裁的平均",
        labels=(_MODEL,),
        final=True,
    ),
    Metric(
        name="bits_per_character",
        help="Bits per character by genre",
        zh="各体裁的每字符比特数",
        labels=(_MODEL, GENRE),
        final=True,
    ),
    Metric(
        name="nights_since_promotion",
        help="Nights of this recipe that were judged against the same champion, this one included; 0 where "
        "it is promoted",
        zh="本配方与同一冠军比较过的夜数，含本夜；本夜晋升则为 0",
        final=True,
    ),
    Metric(
        name="champion_since_timestamp_seconds",
        help="Unix time since which the channel has its champion",
        zh="频道现任冠军晋升的 Unix 时间",
        alert="YanmoNoPromotion",
    ),
)
