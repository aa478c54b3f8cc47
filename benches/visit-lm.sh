#!/usr/bin/env bash
# What of helios-lm and its attention only a GPU shows, in one visit: `helios-lm`'s decoder beside compiled PyTorch (GPT-2 124M, Llama of 1.1B),
# the 300M GPT, and attention before and after grouped heads, in turn.
#
#   [PYTHON=python3] benches/visit-lm.sh FOLDER [BEFORE]
#
# BEFORE: a built checkout of an earlier commit, of which the attention is timed in turn with ours.
set -uo pipefail
cd "$(dirname "$0")/.."
out=$(mkdir -p "${1:?a folder for the results}" && cd "$1" && pwd)
before=${2:-}
python=${PYTHON:-python3}
one() { timeout "$1" "${@:2}" 2>&1 | tail -4; }

for round in 1 2; do
  echo "== attention in SPIR-V and PTX, round $round"
  for tree in ${before:+"$before"} .; do
    echo "-- $tree"
    (cd "$tree" && one 60 node benches/kernels-attention.mjs --type f16 --samples 5 --budget 40 --shapes 4x2048x64,8x1024x128)
  done
done
echo '== 300M'
for batch in '1 4' '16 1'; do
  read -r rows micro <<<"$batch"
  one 60 node benches/train.mjs --preset gpt-300m --precision bf16 --quiet --steps 20 --batch "$rows" --micro-steps "$micro" --json "$out/300m-$rows.json"
done
echo '== memory and speed with what is computed again in the backward pass, and without, in turn'
for round in 1 2; do
  for without in '' recompute; do
    one 120 node benches/decoder.mjs --model llama-1.1b --batch 4 ${without:+--without $without}
  done
done
echo '== decoders beside PyTorch'
for model in 'gpt2-124m 16 1024' 'gpt2-124m 64 1024' 'llama-1.1b 4 2048'; do
  read -r name batch block <<<"$model"
  timeout 120 "$python" benches/pytorch/decoder.py --model "$name" --batch "$batch" --block "$block" --json >"$out/pytorch-$name-$batch.json"
  one 120 node benches/decoder.mjs --model "$name" --batch "$batch" --block "$block" --pytorch "$out/pytorch-$name-$batch.json" --results "$out"
done
