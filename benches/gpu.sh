#!/usr/bin/env bash
# Runs all measurements on one GPU beside PyTorch within a time limit: training steps of the 300M and of the 1.29B GPT in bf16, from the same
# weights and batches, PyTorch's between two runs of ours; where a step's time goes; products beside
# cuBLAS; attention; convolutions.
#
#   [LIMIT=570] [PYTHON=python3] [SAVE=COMMAND] benches/gpu.sh FOLDER [STEP …]
#
# Steps: 2048 1.3B 16x1 4x1 1x4 times products attention checks convolutions; all when left out. A step that could not end in time is
# skipped. SAVE: a command to run after each step. `checks` needs the Khronos validation layer, and a loader as new as the layer.
set -uo pipefail
cd "$(dirname "$0")/.."
out=$(mkdir -p "${1:?a folder for the results}" && cd "$1" && pwd)
shift
limit=${LIMIT:-570} python=${PYTHON:-python3}
scratch=$(mktemp -d "${SCRATCH:-/dev/shm}/gpu.XXXXXX")
trap 'rm -rf "$scratch"' EXIT
train=(node benches/train.mjs --preset gpt-300m --precision bf16)

source benches/lib/timed.sh
# options NAME: of a model and its batch
options() {
  case $1 in
    2048) echo --block 2048 --batch 4 --micro-steps 1 ;;
    1.3B) echo --layers 24 --width 2048 --heads 16 --hidden 5504 --block 1024 --batch 8 --micro-steps 1 ;;
    *) echo --batch "${1%x*}" --micro-steps "${1#*x}" ;;
  esac
}
# row NAME: ours, PyTorch eager and compiled, ours again
row() {
  local name=$1 steps=20 warmup=5 ours=60 theirs=110 modes=bf16,bf16-compiled run
  [[ $name == 1.3B ]] && steps=10 warmup=3 ours=150 theirs=150
  # Few tokens at a time: PyTorch's launches count.
  [[ $name == 1x4 || $name == 4x1 ]] && modes+=,bf16-compiled-graphs
  # shellcheck disable=SC2207 # options without spaces
  run=("${train[@]}" --quiet --steps "$steps" $(options "$name"))
  mkdir "$scratch/$name"
  timed "ours-$name-a" "$ours" "${run[@]}" --dump-weights "$scratch/$name/weights.safetensors" --dump-batches "$scratch/$name/batches.safetensors" \
    --json "$out/ours-$name-a.json" &&
    timed "pytorch-$name" "$theirs" "$python" benches/pytorch/train.py --weights "$scratch/$name/weights.safetensors" \
      --batches "$scratch/$name/batches.safetensors" --modes "$modes" --warmup "$warmup" --json "$out/pytorch-$name.json" &&
    timed "ours-$name-b" "$ours" "${run[@]}" --json "$out/ours-$name-b.json" &&
    timed "row-$name" 30 node benches/pytorch/compare.mjs --ours "$out/ours-$name-a.json,$out/ours-$name-b.json" --pytorch "$out/pytorch-$name.json" \
      --results "$out/results-$name" && tail -n 12 "$out/row-$name.txt" | cut -c1-140
  rm -rf "${scratch:?}/$name"
}
times() {
  for name in 2048 1.3B 16x1 4x1 1x4; do
    # shellcheck disable=SC2046 # several words
    timed "times-$name" 60 "${train[@]}" --steps 8 $(options "$name") --kernel-times && grep -A 16 'GPU ms' "$out/times-$name.txt"
  done
}
products() { # those that the targets name
  local nt='NT 8192 2816 1024,NT 8192 5632 1024,NT 8192 1024 2752,NT 4096 4096 4096' tn='TN 1024 1024 8192'
  timed cublas-a 30 "$python" benches/pytorch/products.py && cat "$out/cublas-a.txt"
  timed products 90 node benches/kernels-matmul.mjs --sweep --groups permuted --shapes "$nt" --budget 60 --out "$out/products.json" && cat "$out/products.txt"
  timed swiglu 60 node benches/kernels-matmul.mjs --sweep --groups glu --budget 50 --out "$out/swiglu.json" && cat "$out/swiglu.txt"
  timed gradients 60 node benches/kernels-matmul.mjs --sweep --groups ptx --shapes "$tn" --budget 30 --out "$out/gradients.json" && cat "$out/gradients.txt"
  timed cublas-b 30 "$python" benches/pytorch/products.py
}
attention() {
  for shape in 4x2048x64 8x1024x128; do # the backward pass over long sequences, and heads of 128, are where PyTorch's are faster
    IFS=x read -r batch tokens size <<<"$shape"
    timed "attention-$shape" 60 node benches/kernels-attention.mjs --sweep --shapes "$shape" --json "$out/attention-$shape.json" && cat "$out/attention-$shape.txt"
    timed "attention-pytorch-$shape" 40 "$python" benches/pytorch/attention.py --types bf16 --batches "$batch" --tokens "$tokens" --head-size "$size" \
      --json "$out/attention-pytorch-$shape.json" && cat "$out/attention-pytorch-$shape.txt"
  done
}
checks() { # what only a GPU can show: kernels in PTX, tensors near the largest, launches far ahead, the hand-over to NCCL under the validation layer
  local tests=(kernels/matmul-ptx nn/large nn/in-place nn/arguments graphs workers growth readback gpt-ends)
  tests=("${tests[@]/#/__test__/}")
  timed tests 150 node --test --test-reporter=tap "${tests[@]/%/.test.mjs}" && grep -E '^# (pass|fail|skip)' "$out/tests.txt"
  # One rank: what the hand-over takes.
  timed handover 40 node bin/helios-vk.mjs run --nproc 1 benches/distributed.mjs --engine nccl --bytes 4096,1207349248 --rounds 20 --results "$out/results" &&
    grep -vE '^$' "$out/handover.txt" | head -12
  HELIOS_VALIDATION=1 timed nccl 90 node --test --test-reporter=tap __test__/distributed/nccl.test.mjs && grep -E '^# (pass|fail|skip)' "$out/nccl.txt"
}

convolutions() {
  for precision in bf16 f32; do
    timed "convolution-layers-$precision" 240 node benches/convolution.mjs --precision $precision --json --pytorch "$python"
    timed "convolution-step-$precision" 240 node benches/convolution.mjs --precision $precision --json --pytorch "$python" --step
  done
}

(($#)) || set -- 2048 1.3B 16x1 4x1 1x4 times products attention checks convolutions
for step in "$@"; do
  case $step in
    2048 | 1.3B | 16x1 | 4x1 | 1x4) row "$step" ;;
    times | products | attention | checks | convolutions) "$step" ;;
    *)
      echo "gpu.sh: no step $step" >&2
      exit 2
      ;;
  esac
  [[ -z ${SAVE:-} ]] || eval "$SAVE"
done
