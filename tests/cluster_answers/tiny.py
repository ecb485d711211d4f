"""A pipeline of two little tasks with logs like those of stages: its runs on a cluster are what was recorded.

python tests/cluster_answers/tiny.py        # writes tiny.yaml
"""

from pathlib import Path

from kfp import compiler, dsl, kubernetes

IMAGE = "yanmo-data:0.1.0"
PROGRAM = """
import sys, time
stage, said, code = sys.argv[1], sys.argv[2], int(sys.argv[3])
line = lambda text: print(time.strftime("%H:%M:%S"), f"{stage:<8}", text, file=sys.stderr)
line(f"making {stage}/0123456789ab")
if code:
    line(said)
    line(f"{stage} error {code}: {said[:40]}...")
else:
    line(f"committed {stage}/0123456789ab in 1 s")
    line(said)
sys.exit(code)
"""


@dsl.container_component
def curate(said: str, code: str):  # type: ignore[no-untyped-def]
    return dsl.ContainerSpec(IMAGE, ["python3", "-c", PROGRAM], ["curate", said, code])


@dsl.container_component
def promote(said: str):  # type: ignore[no-untyped-def]
    return dsl.ContainerSpec(IMAGE, ["python3", "-c", PROGRAM], ["promote", said, "0"])


@dsl.pipeline(name="yanmo-tiny")
def tiny(
    text: str = "Promoted: 诗 8.1 bits per character", code: str = "0", cpu: str = "100m", gpus: str = "0"
):
    """Two little tasks."""
    first = curate(said=text, code=code).set_caching_options(False)
    first.set_cpu_request(cpu).set_cpu_limit(cpu).set_memory_request("64Mi").set_memory_limit("64Mi")
    first.set_accelerator_type("nvidia.com/gpu").set_accelerator_limit(gpus)
    kubernetes.add_node_selector(first, "kubernetes.io/os", "linux")
    second = promote(said=text).after(first).set_caching_options(False)
    for task in (first, second):
        task.set_retry(num_retries=3, backoff_duration="5s", backoff_factor=3.0)


if __name__ == "__main__":
    compiler.Compiler().compile(tiny, str(Path(__file__).with_name("tiny.yaml")))
