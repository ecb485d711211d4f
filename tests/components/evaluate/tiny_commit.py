"""Outputs of a store from files by hand."""

from yanmo.store.commit import Recipe, Result, commit_once
from yanmo.store.pointers import move_pointer


def commit(
    store,
    stage,
    files,
    *,
    inputs=None,
    options=None,
    metadata=None,
    channel="dev",
    pointer=None,
    references=None,
    force=False,
    run_id="",
):
    """Commit `files` (name -> callable(path) or text) and move the channel's pointer to it."""

    def build(attempt):
        for name, body in files.items():
            if callable(body):
                body(attempt.path(name))
                attempt.add(name)
            else:
                attempt.write(name, body)
        return Result(counts={}, metadata=metadata or {}, references=references or {})

    recipe = Recipe(stage=stage, revision=1, semantic=options or {}, inputs=inputs or {}, run_id=run_id)
    output = commit_once(store, recipe, build, force=force)
    move_pointer(store, channel, pointer or stage, output.reference)
    return output
