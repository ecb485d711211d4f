#!/bin/sh
# What a container of Yanmo's starts: a command of `yanmo`, or python3 with its arguments, as KFP's DockerRunner
# gives it (a cluster's KFP replaces the entrypoint).
case "${1:-}" in
    python3) exec "$@" ;;
    *) exec yanmo "$@" ;;
esac
