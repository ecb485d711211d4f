#!/usr/bin/env bash
# Makes store-3328ac6.tar.xz: a store as commit 3328ac6 wrote it, which later versions must read.
#
#     git worktree add --detach /tmp/yanmo-3328ac6/code 3328ac6
#     PYTHON=$PWD/.venv/bin/python bash tests/data/store-3328ac6.sh /tmp/yanmo-3328ac6
#
# PYTHON is any Python that has the packages of that commit's constraints/all.txt (unchanged up to the
# commit that added this file); the code comes from the worktree. The archive is written to the folder given.
set -euo pipefail
folder=$1 python=${PYTHON:-python3}
export PYTHONPATH=$folder/code/components:$folder/code/pipelines
yanmo() { "$python" -m yanmo.cli "$@"; }

awk 'NR % 3 == 1' "$folder/code/tests/data/documents.jsonl" > "$folder/documents.jsonl"  # 62 documents
rm -rf "$folder/store"
same=(--store "$folder/store" --channel main --metrics-port -1)
latest=("${same[@]}" --inputs latest)
shape=(--ranks 1 --batch-rows 8 --context 32 --layers 1 --width 16 --heads 1 --head-width 16)
shape+=(--feed-forward 32 --tied-head --start random --warmup-steps 1 --valid-characters 300)
gate=(--limits "distinct_2>=0" --min-gain 0 --level 0.5 --max-genre-loss 9 --draws 2000)
scoring=(--samples 1 --sample-tokens 8 --bootstrap-draws 200 --workers 1)

yanmo curate "${latest[@]}" --sources "$folder/documents.jsonl" --workers 1 \
    --max-malformed-share 1 --max-filter-share 1 --test-characters 1000 --valid-characters 500
yanmo balance "${latest[@]}"
yanmo tokenize "${latest[@]}" --vocab-size 512 --workers 1
for steps_seed in 2:0 60:0 2:1; do  # the first champion, a better one, a worse challenger
    yanmo train "${latest[@]}" "${shape[@]}" --steps "${steps_seed%:*}" --seed "${steps_seed#*:}"
    yanmo evaluate "${latest[@]}" "${scoring[@]}"
    yanmo promote "${latest[@]}" "${gate[@]}"
done
# A training that is killed before its first checkpoint: work, lease and inputs without an output.
setsid "$python" -m yanmo.cli train "${latest[@]}" "${shape[@]}" --steps 100000 --seed 2 &
killed=$!
until compgen -G "$folder/store/runs/train/*/metrics.jsonl" > /dev/null; do sleep 0.2; done
kill -9 -- "-$killed"
wait "$killed" || true
tar -C "$folder" --sort=name --owner=0 --group=0 --numeric-owner -cf - store | xz -9e > "$folder/store-3328ac6.tar.xz"
