#!/usr/bin/env bash
# test_ranks_pipelines.sh in BF16, without mpirun.
HT_LAUNCH=local exec bash "$(dirname "$0")/test_ranks_pipelines.sh" "$1" --numerics bf16
