#!/usr/bin/env bash
# Starts this host's ranks with torchrun; run it on every host. Usage:
#   torchrun.sh CONFIG.yaml HOSTS HOST FIRST_HOST [--key value ...]
#   torchrun.sh two_nodes.yaml 2 0 node0      on node0
#   torchrun.sh two_nodes.yaml 2 1 node0      on node1
# GPUS is the number of GPUs of a host (8), PORT a free port of the first host (29500).
set -euo pipefail
config=$1 hosts=$2 host=$3 first=$4
shift 4
exec torchrun --nnodes "$hosts" --node-rank "$host" --nproc-per-node "${GPUS:-8}" --master-addr "$first" \
  --master-port "${PORT:-29500}" --no-python megatoken train "$config" "$@"
