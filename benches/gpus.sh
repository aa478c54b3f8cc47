#!/usr/bin/env bash
# Runs all measurements on several GPUs of one host within a time limit, beside one GPU and PyTorch's DistributedDataParallel: the 300M
# model in bf16 at 1×4 and 16×1 for each process, gradients in f32 and bf16, ZeRO 0 and 1; and Llama 7B by ZeRO 3, beside PyTorch's FSDP2.
# It also checks that all ranks have equal weights, and
# what happens when a rank is killed and with two launchers over sockets. `benches/gpus.mjs --folder FOLDER` prints the table.
#
#   HELIOS_NCCL_LIBRARY=libnccl.so.2 [N=2] [LIMIT=570] [PYTHON=python3] [SAVE=COMMAND] benches/gpus.sh FOLDER [STEP …]
#
# Steps: checks one ranks again sharded ddp killed nodes collectives; all when left out. `one` and `again` are the same, before and after the
# others. SAVE: a command to run after each step.
set -uo pipefail
cd "$(dirname "$0")/.."
out=${1:?a folder for the results}
shift
n=${N:-2} limit=${LIMIT:-570} python=${PYTHON:-python3}
# A program that uses NVLink multicast can put a host's GPUs out of service.
export NCCL_NVLS_ENABLE=0
mkdir -p "$out"
scratch=$(mktemp -d "${SCRATCH:-/dev/shm}/gpus.XXXXXX")
trap 'rm -rf "$scratch"' EXIT
launch=(node bin/helios-vk.mjs run --nproc "$n")
train=(benches/train.mjs --precision bf16 --quiet)
mission=("${train[@]}" --preset gpt-300m --steps 20)
shapes=(1x4 16x1)

source benches/lib/timed.sh
# size SHAPE: options of a process
size() { echo "--batch ${1%x*} --micro-steps ${1#*x}"; }

checks() {
  timed nccl 60 node --test --test-reporter=tap __test__/distributed/nccl.test.mjs && grep -E '^# (pass|fail|skip)' "$out/nccl.txt"
  for options in '{"engine":"nccl","zero":1}' '{"engine":"nccl","zero":0}' '{"engine":"nccl","zero":1,"reduce":"bf16"}'; do
    timed weights 40 "${launch[@]}" __test__/distributed/gpt-rank.mjs "$options"
    echo "weights after each step, $options: $(grep -o '"hashes":[^]]*]' "$out/weights.txt" | sort | uniq -c | tr -s ' ')"
  done
}
one_gpu() { # alone, in a round: a before the others, b behind them
  for shape in "${shapes[@]}"; do
    # shellcheck disable=SC2046 # several words
    timed "one-$shape-$1" 40 node "${mission[@]}" $(size "$shape") --json "$out/one-$shape-$1.json"
  done
}
ranks() {
  for shape in "${shapes[@]}"; do
    for zero in 1 0; do
      for reduce in f32 bf16; do
        # shellcheck disable=SC2046
        timed "ranks-$shape-zero$zero-$reduce" 50 "${launch[@]}" "${mission[@]}" $(size "$shape") --engine nccl --zero $zero --reduce $reduce \
          --json "$out/ranks-$shape-zero$zero-$reduce.json"
      done
    done
  done
}
ddp() {
  for shape in "${shapes[@]}"; do
    mkdir -p "$scratch/$shape"
    # shellcheck disable=SC2046
    timed "dump-$shape" 60 "${launch[@]}" "${mission[@]}" $(size "$shape") --engine nccl --dump-weights "$scratch/$shape/weights.safetensors" \
      --dump-batches "$scratch/$shape/batches.safetensors" --json "$out/dump-$shape.json"
    timed "ddp-$shape" 120 "$python" -m torch.distributed.run --nproc-per-node "$n" benches/pytorch/train.py \
      --weights "$scratch/$shape/weights.safetensors" --batches "$scratch/$shape/batches.safetensors" --modes bf16,bf16-compiled \
      --json "$out/ddp-$shape.json"
    rm -rf "${scratch:?}/$shape"
  done
}
killed() { # rank 1 is killed once step 10 is saved; the losses must be those of a run that nobody disturbs
  local options=(--precision bf16 --preset gpt-30m --max-steps 20 --sample-tokens 0 --engine nccl --save-every 5)
  timed undisturbed 60 "${launch[@]}" packages/lm/bin/helios-lm.mjs train "${options[@]}" --quiet --out "$scratch/a"
  local dies="$scratch/b/step-0000010"
  timed killed 90 "${launch[@]}" --max-restarts 1 __test__/distributed/gpt-rank.mjs "$(node -p 'JSON.stringify({ train: process.argv.slice(2), dies: process.argv[1] })' \
    "$dies" "${options[@]}" --out "$scratch/b")"
  node -e '
    const { readFileSync } = require("fs");
    const read = (file) => readFileSync(file, "utf8").trim().split("\n").map((line) => JSON.parse(line));
    const [a, b] = process.argv.slice(1, 3).map((run) => read(`${run}/metrics.jsonl`).flatMap(({ loss }) => loss ?? []));
    const from = readFileSync(process.argv[3], "utf8").match(/continuing from .*step-0*(\d+)/)?.[1];
    const equal = from && a.length === 20 && a.join() === b.join();
    console.log(`killed: went on from step ${from}, ${b.length} losses ${equal ? "equal bit for bit" : `DIFFER: ${a} and ${b}`}`);
  ' "$scratch/a" "$scratch/b" "$out/killed.txt"
}
nodes() { # two launchers as two hosts, over sockets; the second has the second device
  local sockets=(env NCCL_P2P_DISABLE=1 NCCL_SHM_DISABLE=1 NCCL_IB_DISABLE=1 NCCL_SOCKET_IFNAME=lo) master=(--nnodes 2 --master 127.0.0.1:29517 --nproc 1)
  local options=("${mission[@]}" --batch 1 --micro-steps 4 --engine nccl)
  HELIOS_DEVICE=1 "${sockets[@]}" timeout 60 node bin/helios-vk.mjs run --node-rank 1 "${master[@]}" "${options[@]}" >"$out/nodes-1.txt" 2>&1 &
  HELIOS_DEVICE=0 timed nodes 60 "${sockets[@]}" node bin/helios-vk.mjs run --node-rank 0 "${master[@]}" "${options[@]}" --json "$out/nodes.json"
  wait
}
sharded() { # Llama 7B, which fits no device by itself: sequences of 2,048 for each process
  for batch in 4 8; do
    timed "sharded-$batch" 90 "${launch[@]}" "${train[@]}" --preset llama-7b --grad-checkpoint --micro-steps 1 --batch $batch --steps 7 \
      --engine nccl --zero 3 --json "$out/sharded-$batch.json"
    timed "fsdp-$batch" 90 "$python" -m torch.distributed.run --nproc-per-node "$n" benches/pytorch/fsdp.py --batch $batch --steps 7 \
      --json "$out/fsdp-$batch.json"
  done
}
collectives() {
  timed collectives 60 "${launch[@]}" benches/distributed.mjs --engine nccl --bytes 4096,1048576,67108864,1207349248 --rounds 20 --results "$out/results"
  grep -vE '^$' "$out/collectives.txt" | head -20
}
(($#)) || set -- checks one ranks again sharded killed nodes collectives ddp
for step in "$@"; do
  case $step in
    one) one_gpu a ;;
    again) one_gpu b ;;
    checks | ranks | sharded | ddp | killed | nodes | collectives) "$step" ;;
    *)
      echo "gpus.sh: no step $step" >&2
      exit 2
      ;;
  esac
  [[ -z ${SAVE:-} ]] || eval "$SAVE"
done
