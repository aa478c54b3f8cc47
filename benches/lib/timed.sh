# Functions for scripts that measure within `limit` seconds and store results in the folder `out`.

# timed NAME SECONDS COMMAND…: its output into NAME.txt, and the end of that where it fails; left out where less than a quarter of its seconds
# is left.
timed() {
  local name=$1 most=$2 since=$SECONDS left=$((limit - SECONDS))
  shift 2
  if ((left < most / 4)); then
    echo "$name: left out, $left s are left"
    return 1
  fi
  timeout --kill-after=5 $((left < most ? left : most)) "$@" >"$out/$name.txt" 2>&1
  local status=$?
  echo "$name: status $status, $((SECONDS - since)) s"
  ((status == 0)) || tail -n 6 "$out/$name.txt" | cut -c1-300
  return $status
}
