#!/usr/bin/env bash
# Text of helios-lm beside llama.cpp's Vulkan backend on a GPU, in one visit: three sizes in f16 and q8_0, prompts, several sequences, the first
# token, and where the time of a token goes. Each part keeps its results if a later one is stopped.
#
#   [LLAMA=FOLDER] [MODELS=FOLDER] [SMALL=1] benches/visit-generate.sh FOLDER
#
# FOLDER: for the results. LLAMA: npm's installed package node-llama-cpp with its @node-llama-cpp/linux-x64-vulkan, or a .tar.xz of a
# node_modules with both; without it only helios-lm is measured. MODELS: where the models are written, some 60 GB. SMALL: a tiny model, to
# check the script where there is no GPU. To pack LLAMA (some 20 MB):
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
# A part that hangs must not cost the rest of the visit.
one() {
  local seconds=$1
  shift
  echo "== $*"
  timeout "$seconds" node benches/generate.mjs --folder "$models" --results "$out" ${llama:+--llama "$llama"} "${SMALL_ARGS[@]}" "$@" 2>&1 | tail -30
}
SMALL_ARGS=()
if [[ ${SMALL:-} ]]; then
  SMALL_ARGS=(--prompt 8 --prefill 8,24 --tokens 6 --rounds 2 --slots 1,2)
  [[ $llama ]] && SMALL_ARGS+=(--llama-device "${LLAMA_DEVICE:-vulkan}")
  runs=('tiny f16' 'tiny q8_0')
  slow=()
else
  runs=('300m f16' '300m q8_0' '1.2b f16' '1.2b q8_0')
  slow=('7.2b f16')
fi
nvidia-smi --query-gpu=name,driver_version,clocks.sm,clocks.mem --format=csv,noheader 2>/dev/null
for run in "${runs[@]}"; do
  read -r model dtype <<<"$run"
  one 150 --model "$model" --dtype "$dtype"
done
for run in "${slow[@]}"; do
  read -r model dtype <<<"$run"
  # 16 caches beside 14.5 GB of weights fit, but four rounds of them take long.
  one 240 --model "$model" --dtype "$dtype" --slots 1 --rounds 3
done
for run in "${runs[@]}" "${slow[@]}"; do
  read -r model dtype <<<"$run"
  echo "== where the time goes: $model, $dtype"
  timeout 90 node benches/generate.mjs --folder "$models" "${SMALL_ARGS[@]}" --model "$model" --dtype "$dtype" --profile >"$out/profile-$model-$dtype.txt" 2>&1
  sed -n '/^A token/,$p' "$out/profile-$model-$dtype.txt" | head -16
done
