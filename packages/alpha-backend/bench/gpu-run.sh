#!/usr/bin/env bash
# Measures the trainer with this addon and with others on a GPU, within a time limit. Each step writes its table and its JSON into
# FOLDER when it ends, and a step that cannot end in time is skipped, so that a run that is cut off keeps what it measured.
#
#   OLDER=CHECKOUT NEWEST=CHECKOUT [BASE=ADDON] [TRACE=FILE] [LIMIT=SECONDS] [EXTRA=…] [SAVE=COMMAND] \
#     packages/alpha-backend/bench/gpu-run.sh FOLDER older=1 newest=3 builds=2 rest alpha=2
#
# older=N, newest=N: N rounds of that version of the trainer, with this addon and with the one of its checkout
# builds=N: N rounds of the newest trainer, with this addon and with BASE
# alpha=N: N rounds of the newest trainer, with @helios-vk/alpha-backend and with its own backend
# rest: the JavaScript suite, the recorded run (TRACE), the calls one by one
#
# EXTRA: further options of `npm run bench`. SAVE: a command to run after each step.
set -uo pipefail
cd "$(dirname "$0")/../../.."
out=${1:?a folder for the results}
shift
mkdir -p "$out"
limit=${LIMIT:-570}
addon=packages/helios/native/helios_vk.node

# step NAME SECONDS COMMAND…
step() {
  local name=$1 most=$2 since=$SECONDS left=$((limit - SECONDS))
  shift 2
  if ((left < most / 3)); then
    echo "$name: skipped, $left s are left"
    return
  fi
  timeout --kill-after=5 $((left < most ? left : most)) "$@" >"$out/$name.txt" 2>&1
  echo "$name: status $?, $((SECONDS - since)) s"
  [[ -z ${SAVE:-} ]] || eval "$SAVE"
}

# speed NAME SECONDS CHECKOUT BASELINE
speed() {
  # shellcheck disable=SC2086 # several words
  step "$1" "$2" node packages/alpha-backend/bench/trainer-tokens.mjs --trainer "$3" --baseline "$4" --rounds 1 --steps 5 --memory-every 1 \
    --json "$out/$1.json" ${EXTRA:-}
}

for what in "$@"; do
  rounds=${what#*=}
  case $what in
    # Without matrix units: that version's shaders for them are not valid SPIR-V.
    older=*) for ((i = 1; i <= rounds; i++)); do HELIOS_COOP_TILE=none speed "older-$i" 250 "$OLDER" "$OLDER/$addon"; done ;;
    newest=*) for ((i = 1; i <= rounds; i++)); do speed "newest-$i" 200 "$NEWEST" "$NEWEST/$addon"; done ;;
    builds=*) for ((i = 1; i <= rounds; i++)); do speed "builds-$i" 150 "$NEWEST" "$BASE"; done ;;
    alpha=*) step alpha 400 node packages/alpha-backend/bench/alpha.mjs --trainer "$NEWEST" --rounds "$rounds" --json "$out/alpha.json" ;;
    rest)
      step js 150 node scripts/test.mjs --only js
      [[ -z ${TRACE:-} ]] || step replay 100 node packages/alpha-backend/bench/replay.mjs --trace "$TRACE" --steps 5 --warmup 2 --rounds 2 \
        --baseline "$NEWEST/$addon" --check
      step calls 60 node benches/calls.mjs --rounds 2 --baseline "$NEWEST/$addon"
      ;;
    *) echo "$what: not a step" && exit 2 ;;
  esac
done
