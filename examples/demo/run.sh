#!/usr/bin/env bash
# Trains a small model on a real book across several ranks and shows the result. ./dev demo builds the program and
# calls this; needs Debian's bible-kjv for the text. Usage: run.sh [RANKS], with the program and the output folder in
# MEGATOKEN and DEMO_DIR where they are not build/megatoken and build/demo.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
program=${MEGATOKEN:-$root/build/megatoken} out=${DEMO_DIR:-$root/build/demo} ranks=${1:-4}
work=$out/input
rm -rf "$out"
mkdir -p "$work/model"

say() { printf '\n== %s\n' "$*"; }

say "Data: the King James Bible, its last 3 % held out"
bible -f gen1:1-rev22:21 </dev/null >"$work/book.txt"
size=$(stat -c %s "$work/book.txt")
[ "$size" -gt 4000000 ] || { echo "error: bible-kjv printed only $size bytes" >&2; exit 1; }
held=$((size * 3 / 100))
head -c $((size - held)) "$work/book.txt" >"$work/train.txt"
tail -c "$held" "$work/book.txt" >"$work/held_out.txt"
cp "$here/config.json" "$work/model/"
cp "$here"/../../configs/demo/tokenizer*.json "$work/model/"

# One token a byte: the entropy of the bytes is what a model that knows only their frequencies reaches.
unigram=$(od -An -v -tu1 -w1 "$work/held_out.txt" | sort -n | uniq -c |
  awk '{n += $1; c[NR] = $1} END {for (i in c) h -= c[i] / n * log(c[i] / n); printf "%.4f", h}')

common=(--model_name_or_path "$work/model" --dataset_name "$work/train.txt" --eval_dataset "$work/held_out.txt")
begin=$SECONDS
say "One step on one rank, and the same step on $ranks ranks: the loss does not depend on the ranks"
"$program" train "$here/train.yaml" "${common[@]}" --max_steps 1 --num_processes 1 --output_dir "$work/one" >/dev/null
"$program" train "$here/train.yaml" "${common[@]}" --max_steps 1 --num_processes "$ranks" --cp_size "$ranks" \
  --output_dir "$work/many" >/dev/null
field() { sed -n "/\"step\":1,/s/.*\"$2\":\([-0-9.e]*\).*/\1/p" "$1/trainer_log.jsonl"; }
for key in loss grad_norm; do
  one=$(field "$work/one" $key) many=$(field "$work/many" $key)
  echo "$key: 1 rank $one, $ranks ranks $many"
  awk -v a="$one" -v b="$many" 'BEGIN {d = (a - b) / b; exit !(d < 1e-5 && d > -1e-5)}' ||
    { echo "error: they differ" >&2; exit 1; }
done

say "Training on $ranks ranks"
"$program" train "$here/train.yaml" "${common[@]}" --num_processes "$ranks" --cp_size "$ranks" --output_dir "$out/model"

say "Held-out text"
line=$("$program" eval "$here/train.yaml" --model_name_or_path "$out/model" --init_from_config false \
  --eval_dataset "$work/held_out.txt" --num_processes "$ranks" --cp_size "$ranks" --json)
loss=$(printf '%s' "$line" | sed 's/.*"eval_loss":\([-0-9.e]*\).*/\1/')
awk -v l="$loss" -v u="$unigram" 'BEGIN {
  printf "held-out loss %.4f nats a byte; unigram entropy of the same bytes %.4f; %.1f %% under it\n", l, u, 100 * (1 - l / u)
  exit !(l < 0.85 * u)}' || { echo "error: less than 15 % under the unigram entropy" >&2; exit 1; }

say "Done in $((SECONDS - begin)) s"
cat <<EOT
log:        $out/model/trainer_log.jsonl
plots:      $out/model/report.html (any browser), $out/model/runs (TensorBoard)
checkpoint: $out/model (loads in transformers)
next:       $program plan $here/train.yaml --model_name_or_path $out/model --max_length 65536 --num_processes 4 --cp_size 4
            $program train your.yaml --model_name_or_path DIR --dataset_name FILE.jsonl   (README.md, docs/configuration.md)
EOT
