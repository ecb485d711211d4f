"""What balance serves on /metrics."""

from __future__ import annotations

from yanmo.stage.declaration import GENRE, Metric

METRICS = (
    Metric(
        name="documents_read",
        kind="counter",
        help="Documents read",
        zh="读入的文档数",
        labels=(GENRE,),
        final=True,
    ),
    Metric(
        name="documents_kept",
        kind="counter",
        help="Documents written, copies included",
        zh="写出的文档数，含重复的",
        labels=(GENRE,),
        final=True,
    ),
    Metric(
        name="characters_kept",
        kind="counter",
        help="Characters written, copies included",
        zh="写出的字符数，含重复的",
        labels=(GENRE,),
        final=True,
    ),
    Metric(
        name="epochs",
        help="Times a character of the genre is read per epoch",
        zh="每轮中该体裁的字符被读的次数",
        labels=(GENRE,),
        final=True,
    ),
)
