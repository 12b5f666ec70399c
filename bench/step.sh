#!/usr/bin/env bash
# Time and peak memory of whole training steps: random weights, random tokens, one row a step.
# Usage: step.sh MODEL TOKENS STEPS [--key value ...]   MODEL: a folder of bench/models. Prints one line a step.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
program=${MEGATOKEN:-$here/../build/megatoken}
model=$1 tokens=$2 steps=$3
shift 3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 - "$tokens" "$steps" >"$work/rows.jsonl" <<'PY'
import json, random, sys
tokens, rows = int(sys.argv[1]), int(sys.argv[2])
r = random.Random(0)
for _ in range(rows):
    print(json.dumps({"input_ids": r.choices(range(151936), k=tokens)}))
PY
"$program" train --model_name_or_path "$here/models/$model" --init_from_config true --dataset_name "$work/rows.jsonl" \
  --max_length "$tokens" --max_steps "$steps" --per_device_train_batch_size 1 --learning_rate 1e-5 --warmup_steps 0 \
  --lr_scheduler_type constant --save_strategy no --logging_steps 1 --output_dir "$work/out" --disable_tqdm true "$@"
