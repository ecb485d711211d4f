"""The pipeline `decide-promotion`: one task by which a person approves or rejects a model that waits.

Its run shows the decision in KFP's UI, next to the runs that it is about; what counts is the record in the
store. The task is `yanmo promote approve` or `reject` with the fields of the form; the rights of the Secret
that its namespace mounts decide whether it may move the champion. (No annotations from
__future__ here: kfp reads the types themselves.)
"""

from typing import Any

from kfp import dsl

from yanmo_pipelines import resources
from yanmo_pipelines.stages import PROMOTE

DECISIONS = ("approve", "reject")


@dsl.container_component  # type: ignore[untyped-decorator]
def decide(
    decision: str,
    model: str,
    channel: str,
    store: str,
    who: str,
    why: str,
    page: dsl.Output[dsl.HTML],
    result: dsl.OutputPath(str),  # type: ignore[valid-type]
) -> dsl.ContainerSpec:
    """Approve or reject a model that waits for a person (promote --hold).

    Args:
        decision: approve or reject
        model: train/KEY, as its page names it; empty for the only one that waits
        channel: channel that it waits in
        store: where outputs are kept; empty for what the Secret yanmo-store says, else KFP's own bucket
        who: who decides, for the history
        why: the reason, for the history
        page: of the verdict, which says who decided
        result: what was decided
    """
    executor_input = f"--executor-input={dsl.PIPELINE_TASK_EXECUTOR_INPUT_PLACEHOLDER}"
    given = [executor_input, f"--channel={channel}", f"--store={store}", f"--who={who}", f"--why={why}"]
    return dsl.ContainerSpec(
        image=resources.IMAGES[PROMOTE.image],
        command=["python3", "-m", PROMOTE.module],
        args=[decision, *given, "--yes", model],
    )


def build(column: resources.Column, store_secret: str) -> Any:
    """The pipeline, with a column of the table of resources and the Secret that names the store."""

    @dsl.pipeline(name="decide-promotion")  # type: ignore[untyped-decorator]
    def decide_promotion(
        who: str, why: str, channel: str = "main", decision: str = "approve", model: str = "", store: str = ""
    ) -> None:
        """Approve or reject a model that won and waits for a person.

        Args:
            who: who decides, for the history
            why: the reason, for the history
            channel: channel that it waits in
            decision: approve makes it champion; reject lets it wait no longer
            model: train/KEY, as its page names it; empty for the only one that waits
            store: where outputs are kept; empty for what the Secret yanmo-store says, else KFP's own bucket
        """
        task = decide(decision=decision, model=model, channel=channel, store=store, who=who, why=why)
        resources.apply(task, PROMOTE.name, column, store_secret=store_secret)

    parameters = decide_promotion.pipeline_spec.root.input_definitions.parameters
    for choice in DECISIONS:
        parameters["decision"].literals.add().string_value = choice
    return decide_promotion
