#!/usr/bin/env bash
# What of other models than language models only a GPU shows, in one visit beside PyTorch: training steps of ResNet-18 with their memory, inference of
# ResNet-50 and BERT-base by helios-onnx, small models; and prompts of a language model in turn with an earlier checkout's.
#
#   [PYTHON=python3] benches/visit-models.sh FOLDER [BEFORE]
#
# BEFORE: a built checkout of an earlier commit. Python needs PyTorch, torchvision, transformers, onnx and onnxscript.
set -uo pipefail
cd "$(dirname "$0")/.."
out=$(mkdir -p "${1:?a folder for the results}" && cd "$1" && pwd)
before=${2:-}
python=${PYTHON:-python3}

echo '== training steps of ResNet-18'
for precision in bf16 f32; do
  timeout 200 node benches/convolution.mjs --step --precision "$precision" --pytorch "$python" --json | tee "$out/resnet18-$precision.json"
done
echo '== inference by helios-onnx'
for model in resnet50 bert-base; do
  timeout 200 node benches/onnx.mjs --only "$model" --pytorch "$python" --modes compiled --budget 180 --results "$out"
done
echo '== small models'
timeout 200 node benches/models.mjs --only mlp,tiny --pytorch "$python" --modes compiled,graphs --budget 180 --results "$out"
echo '== prompts of 300M'
for round in 1 2; do
  for tree in ${before:+"$before"} .; do
    echo "-- $tree, round $round"
    (cd "$tree" && timeout 60 node benches/generate.mjs --model 300m --prefill 512 --slots 1 --tokens 64)
  done
done
