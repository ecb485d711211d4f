"""What /metrics costs: a step, a scrape at many ranks, series of a pod.

    python benchmarks/telemetry.py [--ranks 64] [--store STORE --channel demo --seconds 600]

Without a store: what is added to a step, measured by itself; a scrape of a pod of so many simulated ranks,
with metrics of 32 layers, each answer made again; its series. With the store of `make demo`: one training of
its model, in which telemetry goes on and off every few seconds (telemetry_training.py).
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from urllib.request import ProxyHandler, Request, build_opener

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "benchmarks")]

from telemetry_training import measure  # noqa: E402

from yanmo.common.made_by import code, processor  # noqa: E402
from yanmo.stage.exporter import Telemetry  # noqa: E402
from yanmo.train import job  # noqa: E402
from yanmo.train.config import STAGE  # noqa: E402
from yanmo.train.health.watchdog import doing_path, figures_path, heartbeat_path  # noqa: E402
from yanmo.train.metrics.gauges import MetricsGauges  # noqa: E402
from yanmo.train.metrics.rank_figures import RankFigures  # noqa: E402

OPEN = build_opener(ProxyHandler({})).open
GENRES = ("shi", "ci", "wen", "fu")


def of_a_step(folder: Path) -> None:
    """CPU time that the training thread needs more in a step, and its watchdog in a second."""
    figures, count = RankFigures(memory_bytes=10**9), 200_000
    began = time.process_time()
    for step in range(count):
        figures.ended(step, 0.5, 0.001)
    each = (time.process_time() - began) / count
    began = time.process_time()
    for _ in range(2000):
        figures.write(folder / "figures")
    second = (time.process_time() - began) / 2000
    print(f"a step of a rank: {1e6 * each:.2f} us CPU; its watchdog: {1e6 * second:.0f} us CPU a second")
    print(f"  together {100 * (each / 0.1 + second):.3f} % of a core in steps of 0.1 s")


def pod(folder: Path, ranks: int, layers: int = 32) -> tuple[Telemetry, MetricsGauges]:
    """A pod in the middle of a training, as its supervisor sees it."""
    telemetry = Telemetry(STAGE.name, STAGE.metrics, run_id="benchmark", port=0)
    gauges = MetricsGauges(telemetry, folder)
    gauges.starting(ranks=ranks, steps=1000)
    for rank in range(ranks):
        path = heartbeat_path(folder, rank)
        path.parent.mkdir(exist_ok=True)
        path.write_text("1")
        doing_path(path).write_text("training step 11")
        figures = RankFigures(memory_bytes=10**9, memory_peak_bytes=10**9)
        figures.ended(10, 0.5, 0.01)
        figures.write(figures_path(path))
    by_layer = {str(layer): 0.5 for layer in range(layers)}
    names = ("grad_norm", "update_ratio", "active_units", "effective_rank", "attention_entropy")
    line = dict.fromkeys(
        ("loss", "perplexity", "bits_per_character", "learning_rate", "grad_norm", "mfu"), 0.5
    )
    phases = dict.fromkeys(("data", "forward", "backward", "optimizer", "checkpoint", "validation"), 0.5)
    lines = [
        {"step": 10, **line, "tokens": 10**6, "tokens_per_second": 1e5, "phase_seconds": phases},
        {"step": 10, "monitor": {**dict.fromkeys(names, by_layer), "output_entropy": 0.5}},
        {"step": 10, "valid_bits_per_character": dict.fromkeys((*GENRES, "mean"), 4.5)},
    ]
    (folder / job.METRICS).write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return telemetry, gauges


def scraped(port: int, accept: str = "") -> bytes:
    headers = {"Accept": accept, "Accept-Encoding": "gzip" if accept else ""}
    with OPEN(Request(f"http://127.0.0.1:{port}/metrics", headers=headers), timeout=10) as answer:
        return bytes(answer.read())


def timed(call: Callable[[], object], count: int, pause: float) -> list[float]:
    found = []
    for _ in range(count):
        time.sleep(pause)
        began = time.perf_counter()
        call()
        found.append(1000 * (time.perf_counter() - began))
    return sorted(found)


def of_a_scrape(folder: Path, ranks: int) -> None:
    """Milliseconds of a scrape, as the scraper sees them, and how much it carries."""
    telemetry, gauges = pod(folder, ranks)
    with telemetry:
        text = scraped(telemetry.port).decode()
        series = sum(not line.startswith("#") for line in text.splitlines())
        print(f"a pod of {ranks} ranks: {series} series, {len(text):,} bytes of text")
        for name, accept in (("text", ""), ("OpenMetrics, gzip", "application/openmetrics-text")):
            before = time.process_time()
            found = timed(functools.partial(scraped, telemetry.port, accept), 40, 0.6)
            cpu = 1000 * (time.process_time() - before) / 40
            print(
                f"  {name}: median {statistics.median(found):.1f} ms, slowest of 40 {found[-1]:.1f} ms, "
                f"{cpu:.1f} ms CPU, the scraper's own included"
            )
        before = time.process_time()
        for _ in range(100):
            gauges.show()
        print(f"  the supervisor's own look, once a second: {10 * (time.process_time() - before):.2f} ms CPU")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--ranks", type=int, default=64, help="of a scraped pod; 0 scrapes none")
    parser.add_argument("--store", default="", help="of make demo; its training is made again in it")
    parser.add_argument("--channel", default="demo")
    parser.add_argument("--seconds", type=float, default=600.0, help="how long its training is watched")
    parser.add_argument("--block", type=float, default=5.0, help="seconds of telemetry on, and of off")
    parser.add_argument("--batch-rows", type=int, default=8, help="of its steps; fewer make more steps")
    options = parser.parse_args()
    load = os.getloadavg()[0]
    print(
        f"{processor()}, {os.cpu_count()} CPUs, load {load:.1f}, Python {platform.python_version()}, {code()}"
    )
    with tempfile.TemporaryDirectory() as folder:
        of_a_step(Path(folder))
    for ranks in (1, 8, options.ranks) if options.ranks else ():
        with tempfile.TemporaryDirectory() as folder:
            of_a_scrape(Path(folder), ranks)
    if options.store:
        measure(options.store, options.channel, options.seconds, options.block, options.batch_rows)


if __name__ == "__main__":
    main()
