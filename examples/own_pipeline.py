"""Two stages of Yanmo before a trainer of your own; run, it writes own_pipeline.yaml for KFP."""

from pathlib import Path

from kfp import compiler, components, dsl, kubernetes

COMPONENTS = Path(__file__).resolve().parents[1] / "pipelines/compiled/components"
curate = components.load_component_from_file(str(COMPONENTS / "curate.yaml"))
tokenize = components.load_component_from_file(str(COMPONENTS / "tokenize.yaml"))


def in_its_pod(task: dsl.PipelineTask) -> dsl.PipelineTask:
    """Give a stage what no component carries: no cache of KFP's, the store's Secrets, a disk to work on."""
    task.set_caching_options(False)
    for secret in ("yanmo-store", "mlpipeline-minio-artifact"):
        kubernetes.use_secret_as_volume(
            task,
            secret,
            mount_path=f"/etc/yanmo/{'store' if secret == 'yanmo-store' else secret}",
            optional=True,
        )
    kubernetes.empty_dir_mount(task, volume_name="scratch", mount_path="/scratch")
    return task.set_cpu_limit("1").set_memory_limit("2Gi")


@dsl.component(base_image="your-trainer:1", install_kfp_package=False)
def train(token_cache: dsl.Input[dsl.Dataset]) -> int:
    """Your trainer: it finds the files where `bytes_at` says, and returns how many token ids it read.

    AWS_ENDPOINT_URL and the keys in its environment say on which server; set them on the task.
    """
    from pyarrow import fs, parquet

    files, folder = fs.FileSystem.from_uri(token_cache.metadata["bytes_at"])
    found = files.get_file_info(fs.FileSelector(folder))
    documents = [each.path for each in found if each.base_name.startswith("documents-")]
    return sum(sum(parquet.read_table(path, filesystem=files)["length"].to_pylist()) for path in documents)


@dsl.pipeline(name="own-trainer")
def own_pipeline(sources: str = "bundled", store: str = "", channel: str = "own") -> int:
    """Curate and tokenize text, then train with your own code."""
    place = {"store": store, "channel": channel}
    curated = in_its_pod(curate(**place, options=f"curate.sources={sources}"))
    tokenized = in_its_pod(
        tokenize(**place, documents=curated.outputs["documents"], options="tokenize.vocab_size=1024")
    )
    return train(token_cache=tokenized.outputs["token_cache"]).output


if __name__ == "__main__":
    compiler.Compiler().compile(own_pipeline, "own_pipeline.yaml")
