#!/usr/bin/env bash
# Convolutions on a GPU in one visit: the layers and the training step of ResNet-18 at 32 × 32, and the same in PyTorch
# where PYTHON has it. Each file in FOLDER is one line of JSON.
#
#   [PYTHON=python3] benches/visit-conv.sh FOLDER
set -uo pipefail
cd "$(dirname "$0")/.."
out=$(mkdir -p "${1:?a folder for the results}" && cd "$1" && pwd)
python=${PYTHON:-python3}
"$python" -c 'import torch' 2>/dev/null && twin=(--pytorch "$python") || twin=()

for precision in bf16 f32; do
  for what in layers step; do
    echo "== $what, $precision"
    flags=(--precision "$precision" --json)
    [ "$what" = step ] && flags+=(--step)
    timeout 240 node benches/convolution.mjs "${flags[@]}" "${twin[@]}" >"$out/convolution-$what-$precision.json"
    head -c 600 "$out/convolution-$what-$precision.json"
    echo
  done
done
