#!/usr/bin/env bash
# scripts/gpu.sh without a GPU: it packs, skips every step by name, and reports; and what its steps do, on the emulated
# device.
#
#   gpu_script_test.sh SOURCE BUILD
set -euo pipefail
source=$1 build=$2
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export TENON_CACHE=$folder/cache TENON_BUILDS=$folder/builds TMPDIR=$folder

fail() {
  printf '%s\n' "$*" >&2
  exit 1
}
expect() { grep -qF -- "$2" "$1" || fail "$1 has no '$2':"$'\n'"$(cat "$1")"; }

TENON_GPU_BUILD=$build "$source/scripts/gpu.sh" pack "$folder/pack" 2> "$folder/pack.log" || fail "$(cat "$folder/pack.log")"
expect "$folder/pack.log" "MiB"

pack=$folder/pack
run() { "$pack/scripts/gpu.sh" run "$folder/results" 2> "$folder/run.log"; }
TENON_GPU_DEVICE=cuda:99 run || fail "$(cat "$folder/run.log")"
steps=$(grep -cE '^[a-z0-9_-]+ +\|' "$pack/scripts/gpu.sh")
skipped=$(grep -c 'skipped: no GPU: ' "$folder/run.log")
[ "$skipped" -eq "$steps" ] || fail "$skipped of $steps steps were skipped:"$'\n'"$(cat "$folder/run.log")"
TENON_GPU_DEVICE=cuda:99 run
[ "$(grep -c '(earlier)' "$folder/run.log")" -eq "$steps" ] || fail "steps were repeated"

cp "$source/docs/cuda.md" "$folder/page.md"
TENON_GPU_PAGE=$folder/page.md "$source/scripts/gpu.sh" report "$folder/results"
expect "$folder/page.md" "| conformance | skipped: no GPU"
expect "$folder/page.md" "## How it works"

# The steps themselves, small and emulated.
ours() {
  local program=$1
  shift
  LD_LIBRARY_PATH=$pack/lib "$pack/bin/$program" "$@"
}
pretend() {
  local step=$1
  shift
  "$@" > "$folder/results/$step.log"
  printf 'passed\n' > "$folder/results/$step.status"
}
for what in limits gemv batch gemm attention points order resnet; do
  pretend "$what" ours bench_cuda --device cuda:emulated --small --json "$what"
done
if [ -n "${TENON_ORACLE_PYTHON:-}" ]; then
  "$TENON_ORACLE_PYTHON" "$pack/scripts/gpu.py" model tiny-q4_k_m "$folder/tiny.gguf"
  pretend decode-8b-q4_k_m ours tenon bench "$folder/tiny.gguf" --device cuda:emulated --ctx 64 -p 8 -n 2 -r 1 --json
  for device in cpu: cuda:emulated; do
    ours tenon generate "$folder/tiny.gguf" -p "ab" --temp 0 -n 4 --ctx 64 --precision exact --device "$device" 2> "$folder/generate.log" ||
      fail "$(cat "$folder/generate.log")"
  done > "$folder/tokens"
  [ "$(sort -u "$folder/tokens" | wc -l)" -eq 1 ] || fail "tokens differ:"$'\n'"$(cat "$folder/tokens")"
fi
TENON_GPU_PAGE=$folder/page.md "$source/scripts/gpu.sh" report "$folder/results"
expect "$folder/page.md" "| gemv q4_k 512 x 256 |"
expect "$folder/page.md" "| attention bf16, 64 keys |"
expect "$folder/page.md" "| ResNet-50 f16 of 1 |"
if [ -n "${TENON_ORACLE_PYTHON:-}" ]; then expect "$folder/page.md" "| 8b-q4_k_m |"; fi
