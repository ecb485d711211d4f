#!/usr/bin/env bash
# Correctness on a GPU, in two parts of at most nine minutes each: docs/reference/measurements.md.
#
#   benchmarks/gpu.sh prepare                 here, with the development environment: fills .gpu/ (ignored by git)
#   benchmarks/gpu.sh 1 [--device cpu]        there: attention, compiled layers, 50 steps beside the CPU, evaluation
#   benchmarks/gpu.sh 2 [--device cpu]        there: ZeRO 1 to 3, checkpoints, kill -9 and resume, out of memory
#
# PYTHON names the interpreter (default: python3, whose torch is taken as it is); what it lacks is installed from
# .gpu/wheels into a temporary folder. Results go to the terminal and, where OUT is set, to $OUT/gpu-PART.json.
# Exit codes: 0 all passed or skipped for a reason of the machine, 1 a check failed, 64 usage, 75 time ran out.
set -euo pipefail
cd "$(dirname "$0")/.."
case "${1:-}" in
prepare) [ -n "${PYTHON:-}" ] || { [ -x .venv/bin/python ] && PYTHON=.venv/bin/python; } ;;
1 | 2) ;;
*) sed -n '2,11s/^# \{0,1\}//p' "$0" >&2; exit 64 ;;
esac
PYTHON=${PYTHON:-python3}
export PYTHONPATH="$PWD/components:$PWD/benchmarks${PYTHONPATH:+:$PYTHONPATH}" PYTHONUNBUFFERED=1
if [ "$1" != prepare ] && ! "$PYTHON" -c 'import deepspeed, minio, psutil, pynvml' 2>/dev/null && ls .gpu/wheels/*.whl >/dev/null 2>&1; then
    site=$(mktemp -d)
    trap 'rm -rf "$site"' EXIT
    "$PYTHON" -m pip install -q --no-index --no-deps --no-compile --no-cache-dir --target "$site" .gpu/wheels/*.whl
    export PYTHONPATH="$PYTHONPATH:$site"
fi
"$PYTHON" benchmarks/gpu_checks.py "$@"
