"""A store with nights, told as a pipeline's stages tell them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path

from yanmo.nights.changing import Values
from yanmo.nights.night import Words
from yanmo.nights.record import FAILED, StageEnd
from yanmo.nights.telling import Run, tell_end, tell_verdict
from yanmo.store.objects import ObjectStore
from yanmo.store.opening import open_store

FIRST = date(2026, 1, 20)


@dataclass
class Told:
    """The store, and what is said of its nights."""

    uri: str

    @property
    def store(self) -> ObjectStore:
        return open_store(self.uri)

    @property
    def folder(self) -> Path:
        return Path(self.uri)

    def run(self, number: int, channel: str = "nightly") -> Run:
        night = (FIRST + timedelta(days=number)).isoformat()
        return Run(store=self.store, channel=channel, run_id=f"r{number}", date=night, timezone="UTC")

    def verdict(self, number: int, state: str = "not promoted", channel: str = "nightly") -> None:
        """A night with a verdict, whose page is 20 kB."""
        end = StageEnd(task="train", state="done", key="a" * 64, cost={"seconds": 125.0})
        tell_end(self.run(number, channel), end, by_chat=False)
        words = {"en": f"Night {number}: {state}.", "zh": f"第 {number} 夜：{state}。"}
        found = {"state": state, "sentence": words, "bits": 8.125, "verse": "床前明月光\n疑是地上霜"}
        tell_verdict(self.run(number, channel), found, page)

    def failure(self, number: int, why: str = "no space left", channel: str = "nightly") -> None:
        words = Words(f"train failed: {why}.", f"train 失败：{why}。")
        tell_end(self.run(number, channel), StageEnd(task="train", state=FAILED, sentence=words))

    def text(self, name: str) -> str:
        return self.store.read(f"nights/{name}")[0].decode()

    def pages(self) -> dict[str, bytes]:
        """Everything that a browser opens."""
        names = [info.name for info in self.store.list("nights") if not info.name.endswith(".json")]
        return {name: self.store.read(name)[0] for name in names}


def page(record: Values) -> str:
    said = record["verdict"]["sentence"]["en"]
    return f'<meta name="yanmo-serial" content="{record["serial"]}"><title>{said}</title>{"诗" * 7000}'
