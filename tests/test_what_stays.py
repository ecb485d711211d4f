"""What Yanmo is for, by its public commands alone: a test for each thing that must outlive every removal.

None of Yanmo's modules is imported here: whatever moves or goes inside, these tests stay as they are. They
share one store, in which `yanmo run` has gone the whole road twice. Rooms have deeper tests of their own.
"""

from __future__ import annotations

import html
import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import yaml
import zstandard
from ink_extras import installed
from servers.replayed import TINY, answers, kubeconfig, one, serving
from servers.s3 import S3Server

from yanmo.promote.gate.headline import conditions, headline
from yanmo.promote.gate.verdict import Words
from yanmo.train.schedule import SCHEDULES

ROOT = Path(__file__).parents[1]
STAGES = ("curate", "balance", "tokenize", "train", "evaluate", "promote")
MODEL = ("--layers=1", "--width=64", "--heads=1", "--feed-forward=64", "--batch-rows=8", "--warmup-steps=2")
TRAIN = (*MODEL, "--ranks=1", "--device=cpu", "--metrics-port=-1", "--log-every=1")
ROAD = {
    "model_vocabulary": "4096",
    "data_quotas": "文档=150%",
    "balance.augment": "说:synonym=0.5",
    "options": " ".join(
        [
            *(
                flag.replace("--", "train.").replace("-", "_")
                for flag in (*MODEL, "--ranks=1", "--log-every=1", "--twins=2")
            ),
            "tokenize.workers=1 tokenize.agreement_sentences=50 curate.workers=1 curate.split_by=source",
            "evaluate.samples=2 evaluate.sample_tokens=12 evaluate.workers=1 evaluate.bootstrap_draws=100",
            "promote.draws=2000",
        ]
    ),
}
DEAD = "http://127.0.0.1:9"
OFFLINE = {"http_proxy": DEAD, "https_proxy": DEAD, "no_proxy": "127.0.0.1"}
"""No network after the install: whatever asks for it is refused."""
pytestmark = [pytest.mark.road, pytest.mark.process]


@dataclass(frozen=True)
class House:
    """A folder with a text and a store, and the command line."""

    folder: Path
    store: str = "store"

    def start(self, *words: str, **variables: str) -> subprocess.Popen[str]:
        paths = os.pathsep.join([str(ROOT / "components"), str(ROOT / "pipelines")])
        return subprocess.Popen(
            [sys.executable, "-m", "yanmo.cli", *words],
            cwd=self.folder,
            env={**os.environ, "PYTHONPATH": paths, "YANMO_STORE": self.store, **OFFLINE, **variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def said(self, *words: str, code: int = 0, **variables: str) -> tuple[str, str]:
        """What a command printed, and its log; it ended with this code."""
        process = self.start(*words, **variables)
        out, err = process.communicate(timeout=600)
        assert process.returncode == code, f"{words} ended with {process.returncode}: {err[-700:]}"
        return out, err

    def __call__(self, *words: str, code: int = 0, **variables: str) -> str:
        return self.said(*words, code=code, **variables)[0]

    def files(self, what: str) -> Path:
        """The folder of an output's files."""
        shown = json.loads(self("store", "show", what, "--json"))
        folder = (self.folder / self.store / shown["reference"]["manifest_uri"]).parent
        return folder / str(shown["manifest"]["attempt"])

    def reference(self, what: str) -> dict[str, str]:
        return dict(json.loads(self("store", "show", what, "--json"))["reference"])

    def key(self, what: str) -> str:
        """STAGE/KEY of what a channel's pointer names."""
        reference = self.reference(what)
        return f"{reference['stage']}/{reference['key']}"

    def digest(self, what: str) -> str:
        return self.reference(what)["content_digest"]

    def train(self, channel: str, *flags: str, cache: str = "house/tokenize") -> Path:
        """Train on the house's token cache; the files of the model."""
        self.log_of_training(channel, *flags, cache=cache)
        return self.files(f"{channel}/train")

    def log_of_training(self, channel: str, *flags: str, cache: str = "house/tokenize", code: int = 0) -> str:
        given = (f"--token-cache={self.key(cache)}", f"--channel={channel}")
        return self.said("train", *given, *TRAIN, *flags, code=code)[1]


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def rows(folder: Path, pattern: str) -> list[dict[str, Any]]:
    return [row for path in sorted(folder.rglob(pattern)) for row in pq.ParquetFile(path).read().to_pylist()]


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> House:
    """The whole road from raw text to a champion, twice, as one person with a laptop goes it."""
    made = House(tmp_path_factory.mktemp("house"))
    with zstandard.open(ROOT / "corpus/modern.jsonl.zst", "rt", encoding="utf-8") as text:
        records = [json.loads(line) for line in text]
    kept = [r for r in records if r["genre"] == "文档"] + [r for r in records if r["genre"] == "说"][:200]
    text_of = "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in kept)
    (made.folder / "text.jsonl").write_text(text_of, encoding="utf-8")
    for name, steps in (("first", "12"), ("second", "24")):
        fields = {**ROAD, "data_sources": "text.jsonl", "train_steps": steps}
        printed = made("run", "--channel=house", *(f"--set={field}={fields[field]}" for field in fields))
        (made.folder / f"{name}.txt").write_text(printed, encoding="utf-8")
        (made.folder / f"{name}.digest").write_text(made.digest("house/champion"), encoding="utf-8")
    return made


# Data


def test_six_stages_are_container_components_on_one_store(house: House, tmp_path: Path) -> None:
    house("compile", f"--out={tmp_path}")
    compiled = yaml.safe_load_all((tmp_path / "language_model.yaml").read_text(encoding="utf-8"))
    spec = next(document for document in compiled if "deploymentSpec" in document)
    executors = spec["deploymentSpec"]["executors"]
    of_stage = {stage: executors[f"exec-{stage}"]["container"] for stage in STAGES}
    assert all("yanmo" in container["image"] for container in of_stage.values())
    assert all("store" in json.dumps(container) for container in of_stage.values())
    assert {"store", "channel", "data_sources", "train_steps"} <= set(
        spec["root"]["inputDefinitions"]["parameters"]
    )
    listed = house("store", "ls")
    assert all(stage in listed for stage in STAGES)


def test_quotas_are_met_and_augmentation_varies_what_is_repeated(house: House) -> None:
    balanced = house.files("house/balance")
    classes = json.loads((balanced / "report.json").read_text(encoding="utf-8"))["classes"]
    before, after = classes["文档"]["before"]["characters"], classes["文档"]["after"]["characters"]
    assert abs(after / before - 1.5) < 0.02
    house(
        "balance",
        f"--documents={house.key('house/curate')}",
        "--quotas=说=300%",
        "--augment=说:synonym=1",
        "--channel=more",
    )
    curated = {row["text"] for row in rows(house.files("house/curate"), "train-*.parquet")}
    texts = [row["text"] for row in rows(house.files("more/balance"), "train-*.parquet")]
    assert len(texts) > len(curated) * 1.5
    assert set(texts) - curated, "some copies were varied"


def test_data_only_makes_text_and_tokens_and_no_model(house: House) -> None:
    house("run", "--pipeline=data_only", "--channel=data", "--set=data_sources=text.jsonl",
          "--set=model_vocabulary=4096", "--set=options=curate.split_by=source")  # fmt: skip
    assert rows(house.files("data/balance"), "train-*.parquet")
    assert (house.files("data/tokenizer") / "tokenizer.json").exists()
    house("store", "show", "data/train", code=65)


def test_tokens_are_jiebas_words_and_every_text_comes_back(house: House) -> None:
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(house.files("house/tokenizer") / "tokenizer.json"))
    texts = [row["text"] for row in rows(house.files("house/balance"), "valid-*.parquet")]
    assert texts and all(tokenizer.decode(tokenizer.encode(text).ids) == text for text in texts)
    shown = house("cache", "show", "house/tokenize", "--document=0")
    assert "说" in house("cache", "show", "house/tokenize") and len(shown) > 50


def test_a_plan_of_a_cache_counts_rows_and_padding(house: House) -> None:
    plan = json.loads(house("cache", "plan", "house/tokenize", "--context=64,128", "--json"))
    assert {"best-fit", "concat", "one"} <= set(re.findall(r"best-fit|concat|one", json.dumps(plan)))


def test_tokenizers_are_compared_and_imported(house: House) -> None:
    flags = ("--sizes=2048", "--candidates=jieba,bpe", "--characters=100000", "--json")
    compared = house("tokenizer", "compare", "--documents=house/balance", *flags)
    assert {"jieba", "bpe"} <= set(re.findall("jieba|bpe", compared))
    folder = house.files("house/tokenizer")
    house("tokenizer", "import", str(folder), "--channel=imported")
    given = (f"--documents={house.key('house/balance')}", f"--tokenizer={house.key('imported/tokenizer')}")
    house("tokenize", *given, "--channel=imported")
    assert "文档" in house("cache", "show", "imported/tokenize")


# Training


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_every_schedule_sets_the_learning_rate(house: House, schedule: str) -> None:
    flags = (f"--schedule={schedule}", "--steps=8", "--valid-every=4", "--valid-characters=500")
    model = house.train(f"schedule-{schedule}", *flags)
    steps = [line for line in lines(model / "metrics.jsonl") if "learning_rate" in line]
    rates = [line["learning_rate"] for line in steps]
    assert len(rates) == 8 and rates[0] < max(rates)
    if schedule in ("linear", "cosine", "wsd"):
        assert rates[-1] <= max(rates) / 2
    if schedule == "constant":
        assert rates[-1] == max(rates)


ENGINES = {
    "torch": ("--backend=torch",),
    "deepspeed zero 1": ("--backend=deepspeed", "--zero-stage=1"),
    "deepspeed zero 2": ("--backend=deepspeed", "--zero-stage=2", "--ranks=2"),
    "deepspeed zero 3": ("--backend=deepspeed", "--zero-stage=3", "--ranks=2"),
    "adamw": ("--optimizer=adamw", "--adam-learning-rate=0.003"),
    "bf16": ("--precision=bf16",),
    "checkpointing": ("--gradient-checkpointing", "--micro-batch=2"),
}


@pytest.mark.parametrize("name", ENGINES)
def test_every_engine_trains_the_same_model(house: House, name: str) -> None:
    random = ("--steps=8", "--start=random")
    model = house.train(f"engine-{name.replace(' ', '-')}", *random, *ENGINES[name])
    losses = [line["loss"] for line in lines(model / "metrics.jsonl") if "loss" in line]
    assert losses[-1] < losses[0]
    if name != "adamw":
        plain = house.train("engine-plain", *random, "--backend=torch")
        wanted = [line["loss"] for line in lines(plain / "metrics.jsonl") if "loss" in line]
        assert losses == pytest.approx(wanted, rel=2e-2 if name == "bf16" else 1e-4)


def paused_at_checkpoint(house: House, channel: str, *flags: str, signum: int = signal.SIGTERM) -> int:
    """Begin a training and stop it after its first checkpoint; its exit code."""
    cache = f"--token-cache={house.key('house/tokenize')}"
    process = house.start("train", cache, f"--channel={channel}", *TRAIN, *flags)
    runs = house.folder / house.store / "runs/train"
    while process.poll() is None and not list(runs.glob("*/checkpoints/latest")):
        time.sleep(0.02)
    process.send_signal(signum)
    process.communicate(timeout=120)
    return process.returncode


LONG = ("--steps=200", "--checkpoint-steps=10", "--context=128", "--width=128", "--seed=3")


def test_a_training_that_was_stopped_or_killed_resumes_to_the_same_bits(house: House) -> None:
    house.train("whole", *LONG)
    weights = (house.files("whole/train") / "model.safetensors").read_bytes()
    for name, signum, code in (("stopped", signal.SIGTERM, 75), ("killed", signal.SIGKILL, -9)):
        other = House(house.folder, f"store-{name}")
        house("store", "cp", "house/tokenize", f"--to={other.store}", "--pointer=house/tokenize")
        assert paused_at_checkpoint(other, "again", *LONG, signum=signum) == code
        log = other.log_of_training("again", *LONG)
        assert "resum" in log.lower() or "goes on" in log.lower(), log[-2000:]
        assert (other.files("again/train") / "model.safetensors").read_bytes() == weights


def test_a_resume_on_another_number_of_ranks_reads_every_sample_once(house: House) -> None:
    whole = lines(house.train("whole", *LONG) / "metrics.jsonl")
    other = House(house.folder, "store-elastic")
    house("store", "cp", "house/tokenize", f"--to={other.store}", "--pointer=house/tokenize")
    assert paused_at_checkpoint(other, "again", *LONG) == 75
    resumed = lines(other.train("again", *LONG, "--ranks=2") / "metrics.jsonl")
    for before, after in zip(whole, resumed, strict=True):
        assert before["step"] == after["step"]
        assert before.get("tokens") == after.get("tokens"), "the same samples in the same steps"
        assert before.get("loss", 0) == pytest.approx(after.get("loss", 0), rel=1e-3)


def test_the_same_command_makes_nothing_again_and_another_option_another_key(house: House) -> None:
    house.train("key", "--steps=5")
    log = house.log_of_training("key", "--steps=5")
    assert "nothing to do" in log
    first = house.reference("key/train")["key"]
    house.train("key", "--steps=6")
    second = house.reference("key/train")["key"]
    assert first != second
    assert "steps" in house("store", "diff", f"train/{first}", f"train/{second}")


def test_presets_by_memory_and_fit_by_memory(house: House) -> None:
    for seed, memory in enumerate((4, 8, 12, 24, 80, 141)):  # another seed, as a preset is in no key
        flags = (f"--preset=gpu-{memory}gb", f"--seed={seed}", "--steps=3", "--offload=none")
        log = house.log_of_training("preset", *flags, "--precision=fp32")
        assert "memory by estimate" in log
    log = house.log_of_training("fit", "--steps=3",
                        "--batch-rows=512", "--micro-batch=auto", "--memory-gib=1.2")  # fmt: skip
    rows_of = re.search(r"batch: (\d+) rows x (\d+) forwards", log)
    assert rows_of and int(rows_of[1]) * int(rows_of[2]) == 512


def test_lora_and_chats_tune_a_model(house: House) -> None:
    with zstandard.open(ROOT / "corpus/chats.jsonl.zst", "rt", encoding="utf-8") as text:
        (house.folder / "chats.jsonl").write_text("".join(itertools.islice(text, 400)), encoding="utf-8")
    house("curate", "--sources=chats.jsonl", "--filter-sets=chat=none", "--channel=chats")
    given = (f"--documents={house.key('chats/curate')}", f"--tokenizer={house.key('house/tokenizer')}")
    house("tokenize", *given, "--channel=chats")
    tuned = house.train(
        "chats", f"--model={house.key('house/train')}", "--lora-rank=4", "--steps=5", cache="chats/tokenize"
    )
    assert (tuned / "config.json").exists()
    answer = house(
        "generate", "--chat", "一加一等于几？", "--model=chats/train", "--max-tokens=8", "--seed=1"
    )
    assert answer.strip()


def test_a_training_that_diverges_goes_back_and_ends_and_one_without_gain_stops_early(
    house: House,
) -> None:
    rates = ("--optimizer=adamw", "--adam-learning-rate=1000", "--head-learning-rate=1000", "--clip=0")
    few = ("--steps=200", "--warmup-steps=60", "--checkpoint-steps=10", "--rewinds=1")
    log = house.log_of_training("wild", *rates, *few, code=64)
    assert "rewinding to step" in log
    assert "diverged" in log
    stopped = house.train(
        "early", "--steps=60", "--valid-every=2", "--early-stopping=2", "--early-min-delta=5"
    )
    assert max(line["step"] for line in lines(stopped / "metrics.jsonl")) < 60


def test_collapse_is_watched_and_times_and_memory_are_measured(house: House) -> None:
    model = house.train("measured", "--steps=4", "--monitor=full", "--monitor-every=2", "--peak-tflops=1")
    (last,) = [line for line in lines(model / "metrics.jsonl") if line["step"] == 4 and "loss" in line]
    for name in ("grad_norm", "tokens_per_second", "phase_seconds", "memory_peak_bytes", "flops_per_second"):
        assert last[name], name
    exposed = (model / "metrics.prom").read_text(encoding="utf-8")
    assert "yanmo_train_loss" in exposed and "yanmo_train_mfu" in exposed


def test_a_night_window_pauses_by_day(house: House) -> None:
    hour = (time.gmtime().tm_hour + 6) % 24
    night = f"--night={hour:02}:00-{(hour + 1) % 24:02}:00"
    log = house.log_of_training("night", "--steps=9", night)
    assert "paus" in log
    house("store", "show", "night/train", code=65)
    house.train("night", "--steps=9")


def test_what_a_run_shows_goes_to_sinks(house: House) -> None:
    pytest.importorskip("tensorboard")
    # Seven steps, as no other test: where the model exists already nothing is trained and nothing shown.
    house.train("sink", "--steps=7", "--sinks=tensorboard=curves")
    assert list((house.folder / "curves").rglob("events.out.tfevents.*"))


# Evaluation and the gate


def test_evaluation_has_genres_baselines_verse_and_contamination(house: House) -> None:
    summary = json.loads((house.files("house/evaluate") / "summary.json").read_text(encoding="utf-8"))
    assert set(summary["genres"]) == {"说", "文档"}
    assert all(3 < genre["bits_per_character"] < 14 for genre in summary["genres"].values())
    listed = house("store", "ls")
    assert all(part in listed for part in ("baselines", "contamination", "writing"))
    printed = (house.folder / "second.txt").read_text(encoding="utf-8")
    for baseline in ("xz -9e", "PPMd", "5-gram"):
        assert baseline in printed


def test_the_gate_compares_with_the_champion_beside_the_noise_of_the_seed(house: House) -> None:
    verdict = json.loads((house.files("house/promote") / "verdict.json").read_text(encoding="utf-8"))
    assert verdict["champion"] == (house.folder / "first.digest").read_text(encoding="utf-8")
    assert verdict["noise"]["measured"] and verdict["noise"]["twins"] == 2 and verdict["gain"]["bits"]
    champion = house.digest("house/champion")
    assert (champion == verdict["challenger"]) == verdict["promote"]
    page = (house.files("house/promote") / "report.html").read_text(encoding="utf-8")
    first, follow = headline(verdict), conditions(Words(**verdict["sentence"]))
    shown = html.unescape(page)
    assert all(said in shown for one in (first, follow) for said in (one.en, one.zh))


def test_a_champion_is_set_by_hand_and_rolled_back_with_a_reason(house: House) -> None:
    shutil.copytree(house.folder / house.store, house.folder / "store-by-hand")
    other = House(house.folder, "store-by-hand")
    first, newest = other.digest("house/champion"), other.reference("house/train")
    other("promote", "set", f"train/{newest['key']}", "--channel=house", "--why=reads better", "--yes")
    assert other.digest("house/champion") == newest["content_digest"] != first
    other("promote", "rollback", "--channel=house", "--why=worse in use", "--yes")
    assert other.digest("house/champion") == first
    told = other("promote", "history", "--channel=house")
    assert "reads better" in told and "worse in use" in told


def test_runs_are_compared(house: House) -> None:
    assert "train.steps" in house("runs", "--channel=house", "--json")
    assert "mean" in house("runs", "--channel=house")


# Models in and out


def test_a_model_goes_out_to_transformers_and_comes_back_in(house: House) -> None:
    house("export", "house", "exported")
    check = (
        "import sys, torch, transformers as t; m = t.AutoModelForCausalLM.from_pretrained(sys.argv[1]); "
        "k = t.AutoTokenizer.from_pretrained(sys.argv[1]); "
        "i = k('春眠不觉晓', return_tensors='pt').input_ids; "
        "print(k.decode(m.generate(i, max_new_tokens=5, do_sample=False)[0]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", check, str(house.folder / "exported")], capture_output=True, text=True
    )
    assert done.returncode == 0 and "春眠" in done.stdout, done.stderr[-2000:]
    key = house("model", "import", "exported").split()[0]
    assert key.startswith("train/")
    ours = house("generate", "春眠不觉晓", f"--model={key}", "--temperature=0", "--max-tokens=5")
    theirs = house("generate", "春眠不觉晓", "--model=house", "--temperature=0", "--max-tokens=5")
    assert ours == theirs and ours.strip()


# The store


def test_a_store_is_listed_verified_copied_explained_and_cleaned(house: House) -> None:
    house("store", "verify")
    copy = House(house.folder, "store-copy")
    house("store", "cp", "house/train", f"--to={copy.store}", "--pointer=house/train")
    assert copy.digest("house/train") == house.digest("house/train")
    rests = house("store", "lineage", "house/train")
    assert all(stage in rests for stage in ("curate", "balance", "tokenize"))
    manifest = copy.files("house/train") / "model.safetensors"
    manifest.write_bytes(manifest.read_bytes()[:-1] + b"!")
    out, err = copy.said("store", "verify", code=65)
    assert "model.safetensors" in out + err
    shutil.copytree(house.folder / house.store, house.folder / "store-gc")
    cleaned = House(house.folder, "store-gc")
    removed = cleaned("store", "gc", "--older-than=0s")
    assert removed.strip(), "a dry run says what would go"
    cleaned("store", "gc", "--older-than=0s", "--delete")
    assert cleaned.digest("house/champion") == house.digest("house/champion")
    cleaned("store", "verify")


def test_a_store_is_a_bucket_on_s3_too(house: House, s3_server: S3Server, s3_place: str) -> None:
    remote = House(house.folder, f"s3://{s3_place}/store")
    server = {**s3_server.environment(), "YANMO_SCRATCH": str(house.folder / "scratch")}
    house("store", "cp", "house/tokenize", f"--to={remote.store}", "--pointer=house/tokenize", **server)
    cache = f"--token-cache={house.key('house/tokenize')}"
    remote("train", cache, "--channel=remote", *TRAIN, "--steps=8", **server)
    house.train("local", "--steps=8")
    shown = json.loads(remote("store", "show", "remote/train", "--json", **server))
    assert shown["reference"]["content_digest"] == house.digest("local/train")
    remote("store", "verify", **server)


# On a cluster, whose answers are recorded


def test_launch_makes_a_train_job_in_kueues_queue(house: House, tmp_path: Path) -> None:
    group = "/apis/trainer.kubeflow.org"
    runtime = yaml.safe_load((ROOT / "manifests/components/launch/runtime.yaml").read_text(encoding="utf-8"))
    installed = [
        one(f"GET {group}", 200, {"versions": [{"version": "v1alpha1"}]}),
        one(f"GET {group}/v1alpha1/namespaces/kubeflow/trainingruntimes/yanmo-train", 200, runtime),
    ]
    flags = ("--channel=nodes", "--nodes=2", "--queue=night", "--dry-run")
    where = (f"--token-cache={house.key('house/tokenize')}", f"--store=file://{house.folder / house.store}")
    with serving(installed) as (address, _):
        out = house("launch", *where, *flags, KUBECONFIG=kubeconfig(tmp_path, address))
    assert "TrainJob" in out and "kueue.x-k8s.io/queue-name" in out


def test_submit_follows_a_run_to_its_verdict(house: House) -> None:
    with serving(answers("green")) as (address, _):
        out = house(
            "submit", f"--host={address}", f"--pipeline={TINY}", "--look-seconds=0", KUBECONFIG="none"
        )
    assert out.splitlines()[-1].startswith("promote  Promoted")


def test_rerun_makes_a_job_of_a_cron_job(house: House, tmp_path: Path) -> None:
    with serving(answers("rerun-kubernetes")) as (address, _):
        config = kubeconfig(tmp_path, address)
        out = house("rerun", "balance", "--name=r1", "--dry-run", "--look-seconds=0", KUBECONFIG=config)
    assert yaml.safe_load(out)["kind"] == "Job"


def test_doctor_and_status_look_at_a_cluster(house: House, tmp_path: Path) -> None:
    with serving(answers("doctor")) as (kfp, _), serving(answers("doctor-kubernetes")) as (kubernetes, _):
        config = kubeconfig(tmp_path, kubernetes)
        found = house("doctor", f"--host={kfp}", "--json", "--look-seconds=0", KUBECONFIG=config)
    assert {json.loads(line)["check"] for line in found.splitlines()}
    assert "house" in house("status", "--store=store", KUBECONFIG="none")


# For people


def test_pages_are_in_both_languages() -> None:
    pages = {str(path) for path in (ROOT / "docs").glob("[!di]*/*.md")}
    chinese = {path for path in pages if path.endswith(".zh.md")}
    assert len(chinese) > 20 and {path.replace(".zh.md", ".md") for path in chinese} == pages - chinese
    assert (ROOT / "README.zh.md").exists()


def test_filters_and_metrics_of_another_package_are_used(house: House, tmp_path: Path) -> None:
    site = str(installed(tmp_path / "ink"))
    paths = os.pathsep.join([site, str(ROOT / "components"), str(ROOT / "pipelines")])
    house("curate", "--sources=text.jsonl", "--plugin-filters=longest_line<=200", "--max-filter-share=1",
          "--channel=plugin", PYTHONPATH=paths)  # fmt: skip
    dropped = json.loads((house.files("plugin/curate") / "report.json").read_text(encoding="utf-8"))[
        "dropped"
    ]
    assert "plugin:longest_line" in dropped
