#!/usr/bin/env bash
# How good the package's picks are for matrix products that no table names, on a GPU in one visit of some 150 s: for a sample of a grid of models the
# pick and the plans that could be faster, timed in turn, and cuBLAS by PyTorch where PYTHON has it.
#
#   [PYTHON=python3] [LIMIT=150] [COUNT=90] [PRODUCTS=LIST] [SMALL=1] benches/visit-grid.sh FOLDER
#
# LIMIT: seconds in all. COUNT: products; what does not fit the limit is left out. PRODUCTS: those that come first, such as
# 'bf16 NT 8 50304 512,f32 TN 256 1280 2048'. SMALL: tiny products, to check the script where there is no GPU.
set -uo pipefail
cd "$(dirname "$0")/.."
out=$(mkdir -p "${1:?a folder for the results}" && cd "$1" && pwd)
python=${PYTHON:-python3} limit=${LIMIT:-150}
"$python" -c 'import torch; assert torch.cuda.is_available()' 2>/dev/null && twin=(--pytorch "$python") || twin=()
nvidia-smi --query-gpu=name,driver_version,clocks.sm,clocks.mem --format=csv,noheader 2>/dev/null
# Starting Node, and looking for PyTorch, take some seconds, too.
HELIOS_TUNE=0 timeout "$limit" node benches/kernels-matmul.mjs --grid --count "${COUNT:-90}" --budget "$((limit > 40 ? limit - 20 : limit))" --top 25 \
  ${SMALL:+--small} ${PRODUCTS:+--products "$PRODUCTS"} "${twin[@]}" --out "$out/grid.json" --results "$out" 2>&1 | tee "$out/grid.txt"
