"""What /metrics costs: a step, a scrape at many ranks, series of a pod.

    python benchmarks/telemetry.py [--ranks 64] [--store STORE --channel demo --steps 40 --pairs 4]

Without a store: what is added to a step, measured by itself; a scrape of a pod of so many simulated ranks,
with metrics of 32 layers, each answer made again; its series. With the store of `make demo`: its training,
for so many steps, everything on (served, scraped each second) and everything off, in turns; CPU time of the
steps is compared, as it is less moved by what else runs on the machine.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from urllib.request import ProxyHandler, Request, build_opener

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from processes import listening  # noqa: E402

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


def trained(store: str, channel: str, steps: int, seed: int, on: bool) -> tuple[float, float]:
    """CPU and wall seconds of a step of the demo's training, without its first ones."""
    with tempfile.TemporaryDirectory() as temporary:
        flags = [f"--store={store}", f"--channel={channel}", "--pointer=none", f"--steps={steps}"]
        flags.append(f"--seed={seed}")  # an equal model would be kept with its first record
        flags += ["--valid-every=0", "--log-every=5", "--log-level=warning", f"--scratch={temporary}"]
        flags += [
            "--checkpoint-steps=0",
            "--checkpoint-seconds=0",
            "--valid-points=0",
            f"--metrics-port={0 if on else -1}",
        ]
        process = subprocess.Popen([sys.executable, "-m", "yanmo.train", *flags])
        ended = threading.Event()
        if on:
            threading.Thread(target=scrape_each_second, args=(process.pid, ended), daemon=True).start()
        failed = process.wait()
        ended.set()
        assert not failed, failed
    newest = max(Path(store).glob("cas/train/*/*/metrics.jsonl"), key=lambda path: path.stat().st_mtime)
    lines = [json.loads(line) for line in newest.read_text(encoding="utf-8").splitlines()]
    lines = [line for line in lines if "cpu_seconds" in line]
    first, last = lines[0], lines[-1]
    count = last["step"] - first["step"]
    return tuple((last[name] - first[name]) / count for name in ("cpu_seconds", "seconds"))  # type: ignore[return-value]


def scrape_each_second(pid: int, ended: threading.Event) -> None:
    """Find the port of a process in /proc, then scrape."""
    while not ended.wait(1.0):
        for port in listening(pid):
            try:
                scraped(port, "application/openmetrics-text")
            except OSError:
                continue


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--ranks", type=int, default=64, help="of a scraped pod; 0 scrapes none")
    parser.add_argument("--store", default="", help="of make demo; its training is made again in it")
    parser.add_argument("--channel", default="demo")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--pairs", type=int, default=4)
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
        ratios, seeds = [], int(time.time())
        for pair in range(options.pairs):
            order = (True, False) if pair % 2 else (False, True)
            found = {
                on: trained(options.store, options.channel, options.steps, seeds + 2 * pair + on, on)
                for on in order
            }
            ratios.append([found[True][n] / found[False][n] - 1 for n in (0, 1)])
            print(
                f"pair {pair + 1}: CPU {found[True][0]:.4f} s a step on, {found[False][0]:.4f} off; wall "
                f"{found[True][1]:.3f} on, {found[False][1]:.3f} off",
                flush=True,
            )
        for n, name in enumerate(("CPU", "wall")):
            each = sorted(100 * ratio[n] for ratio in ratios)
            print(f"{name} of a step, on beside off: median {statistics.median(each):+.2f} %, {each}")


if __name__ == "__main__":
    main()
