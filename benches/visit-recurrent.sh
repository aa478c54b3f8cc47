#!/usr/bin/env bash
# Recurrent layers on a GPU in one visit: training steps of two LSTM layers of 650 and of GRU layers, with two dispatches for each step and with one
# for all, in turn, and in PyTorch where PYTHON has it; the time of their kernels; and the tests of both paths. Each file in FOLDER is JSON or text.
#
#   [PYTHON=python3] benches/visit-recurrent.sh FOLDER
set -uo pipefail
cd "$(dirname "$0")/.."
out=$(mkdir -p "${1:?a folder for the results}" && cd "$1" && pwd)
python=${PYTHON:-python3}
"$python" -c 'import torch' 2>/dev/null && twin=(--pytorch "$python") || twin=()

timeout 120 node --test __test__/kernels/recurrent.test.mjs __test__/kernels/decode-layer.test.mjs >"$out/tests.txt" 2>&1
echo "== tests: $?"
for dispatch in 0 1; do
  # PyTorch once, beside ours as it is by default.
  peer=()
  [ "$dispatch" = 1 ] && peer=("${twin[@]}")
  echo "== HELIOS_RECURRENT_DISPATCH=$dispatch"
  HELIOS_RECURRENT_DISPATCH=$dispatch timeout 200 node benches/models.mjs --only lstm,gru2,gru --budget 180 --json "${peer[@]}" \
    >"$out/recurrent-$dispatch.json"
  head -c 900 "$out/recurrent-$dispatch.json"
  echo
  HELIOS_RECURRENT_DISPATCH=$dispatch timeout 60 node benches/models.mjs --only lstm,gru2 --precisions bf16 --profile \
    >"$out/recurrent-kernels-$dispatch.txt" 2>&1
  head -n 12 "$out/recurrent-kernels-$dispatch.txt"
done
