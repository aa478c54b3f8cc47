#!/usr/bin/env bash
# One run on a machine with a Hopper GPU: every plan of list.txt, cuBLAS before, between and after. Made ready elsewhere, from the repository's root:
#   node benches/ptx/make.mjs FOLDER && cc -O2 -o FOLDER/launch benches/ptx/launch.c -lvulkan -lm && cp benches/ptx/{cublas.py,run.sh} FOLDER
# and there: bash FOLDER/run.sh RESULTS.txt
set -u
cd "$(dirname "$0")"
{
  nvidia-smi --query-gpu=name,driver_version,clocks.sm,power.draw --format=csv,noheader
  python3 cublas.py
  i=0
  while read -r name; do
    # A kernel that hangs or loses the device takes its process along and no other's.
    timeout 60 ./launch list.txt "$name" || echo "FAILED $name: $?"
    i=$((i + 1))
    [ $((i % 8)) = 0 ] && python3 cublas.py
  done <names.txt
  python3 cublas.py
} 2>&1 | tee "${1:-results.txt}"
