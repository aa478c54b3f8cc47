#!/usr/bin/env bash
# Text of helios-lm beside llama.cpp's Vulkan backend on a GPU, in one visit: three sizes in f16 and q8_0, prompts, several sequences, the first
# token, and where the time of a token goes. Each part keeps its results if a later one is stopped.
#
#   [LLAMA=FOLDER] [MODELS=FOLDER] [RUNS='300m:f16 …'] [SMALL=1] benches/visit-generate.sh FOLDER
#
# FOLDER: for the results. LLAMA: npm's installed package node-llama-cpp with its @node-llama-cpp/linux-x64-vulkan, or a .tar.xz of a
# node_modules with both; without it only helios-lm is measured. MODELS: where the models are written, some 20 GB. RUNS: only these. SMALL: a
# tiny model, to check the script where there is no GPU (LLAMA_DEVICE=cpu: llama.cpp there). To pack LLAMA (some 20 MB):
#   npm install --omit=optional --ignore-scripts node-llama-cpp @node-llama-cpp/linux-x64 @node-llama-cpp/linux-x64-vulkan
#   tar -cJf llama.tar.xz --exclude='*.map' --exclude='*.d.ts' node_modules
set -uo pipefail
cd "$(dirname "$0")/.."
out=$(mkdir -p "${1:?a folder for the results}" && cd "$1" && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
models=${MODELS:-$scratch/models}
llama=${LLAMA:-}
if [[ $llama == *.tar.xz ]]; then
  tar -xJf "$llama" -C "$scratch"
  llama=$scratch/node_modules/node-llama-cpp
fi
args=(--folder "$models" ${llama:+--llama "$llama"})
runs=${RUNS:-300m:f16 1.2b:f16 300m:q8_0 1.2b:q8_0 7.2b:f16}
if [[ ${SMALL:-} ]]; then
  runs=${RUNS:-tiny:f16 tiny:q8_0}
  args+=(--prompt 8 --prefill 8,24 --tokens 24 --rounds 2 --slots 1,2 --llama-device "${LLAMA_DEVICE:-vulkan}")
fi
nvidia-smi --query-gpu=name,driver_version,clocks.sm,clocks.mem --format=csv,noheader 2>/dev/null
# A part that hangs must not cost the rest of the visit.
for run in $runs; do
  # The caches of 16 sequences fit beside 14.5 GB of weights, but rounds of them take long.
  [[ $run == 7.2b:* ]] && more=(--slots 1 --rounds 3) || more=()
  echo "== $run"
  timeout 300 node benches/generate.mjs "${args[@]}" --model "${run%:*}" --dtype "${run#*:}" "${more[@]}" --results "$out" 2>&1 | tail -30
done
for run in $runs; do
  echo "== where the time goes: $run"
  timeout 100 node benches/generate.mjs "${args[@]}" --model "${run%:*}" --dtype "${run#*:}" --profile >"$out/profile-${run/:/-}.txt" 2>&1
  sed -n '/^A token/,$p' "$out/profile-${run/:/-}.txt" | head -16
done
