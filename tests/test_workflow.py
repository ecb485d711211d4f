"""What the forge runs: rights that each job needs, actions by their commit, nobody's account or registry."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

PATH = Path(__file__).parents[1] / ".github/workflows/ci.yml"
WORKFLOW = yaml.safe_load(PATH.read_text(encoding="utf-8"))
STEPS = [step for job in WORKFLOW["jobs"].values() for step in job["steps"]]


def test_only_the_jobs_for_images_may_write_and_only_packages() -> None:
    rights = {name: job.get("permissions", WORKFLOW["permissions"]) for name, job in WORKFLOW["jobs"].items()}
    written = {name: {of for of, may in given.items() if may == "write"} for name, given in rights.items()}
    assert written == {"test": set(), "images": {"packages"}, "sign": {"packages", "id-token"}}


def test_actions_are_pinned_by_commit_and_leave_no_token_behind() -> None:
    used = [step["uses"] for step in STEPS if "uses" in step]
    assert used and all(re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40}", name) for name in used)
    checkouts = [step for step in STEPS if "checkout" in step.get("uses", "")]
    assert all(step["with"]["persist-credentials"] is False for step in checkouts)


def test_no_text_of_a_change_reaches_a_shell_and_no_registry_is_named() -> None:
    assert [step["run"] for step in STEPS if "${{" in step.get("run", "")] == []
    prefixes = {job["env"]["PREFIX"] for name, job in WORKFLOW["jobs"].items() if name != "test"}
    assert prefixes == {"${{ vars.REGISTRY }}/${{ github.repository }}/"}
