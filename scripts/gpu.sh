#!/usr/bin/env bash
# What a short loan of a GPU is used for: everything is built here, and runs there.
#
#   scripts/gpu.sh pack [FOLDER]      here: builds for sm_90 and makes one folder of at most 60 MiB (build/gpu/pack)
#   scripts/gpu.sh run [RESULTS]      there, in that folder: conformance, models, sanitizer, benchmarks ($OUT or results)
#   scripts/gpu.sh report [RESULTS]   here: writes the tables of docs/cuda.md from what came back
#
# `run` takes at most TENON_GPU_MINUTES (25) and goes on where an earlier one was cut off: a step that has a result is
# not repeated. A step that lacks something (a GPU, PyTorch, llama.cpp, compute-sanitizer) says so and is skipped.
# TENON_GPU_DEVICE    the device (cuda:0)
# TENON_GPU_BUILD     for pack: programs of this build are taken, and nothing is built
# TENON_GPU_PAGE      for report: the page (docs/cuda.md)
# Exit status: 0 also where steps were skipped, 1 where one failed.
# shellcheck disable=SC2317  # steps are called by name
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

programs=(tools/tenon tests/cuda/test_cuda tests/programs/random_programs benchmarks/bench_cuda)
files=(scripts/gpu.sh scripts/gpu.py scripts/lib.sh benchmarks/cuda_peers.py)
device=${TENON_GPU_DEVICE:-cuda:0}

# ---- pack

# The libraries that a program needs, but those of the C library, which belong to the machine.
libraries_of() {
  ldd "$@" | awk '$2 == "=>" && $3 ~ /^\// {print $3}' | sort -u |
    grep -vE '/(libc|libm|libdl|librt|libpthread|libresolv|libcuda|ld-linux[^/]*)\.so'
}

pack() {
  local folder=${1:-$builds/gpu/pack} build=${TENON_GPU_BUILD:-$builds/gpu} program size
  if [ -z "${TENON_GPU_BUILD:-}" ]; then
    configure gpu || die "cannot configure"
    build gpu tenon test_cuda random_programs bench_cuda tenon_cuda_plugin || die "cannot build"
  fi
  rm -rf "$folder"
  mkdir -p "$folder/bin" "$folder/lib" "$folder/tests/models/data"
  for program in "${programs[@]}"; do
    [ -e "$build/$program" ] || die "$build has no $program"
    strip -o "$folder/bin/${program##*/}" "$build/$program"
  done
  strip --strip-unneeded -o "$folder/lib/libtenon_cuda_plugin.so" "$build/backends/cuda/libtenon_cuda_plugin.so"
  libraries_of "$folder"/bin/* | xargs --no-run-if-empty cp --dereference --target-directory "$folder/lib"
  # Compressed, since every program has the whole library in it.
  # With a window in which a program finds the one before it: a third of what gzip makes, in less time.
  (cd "$folder" && python3 -c '
import lzma, tarfile
window = [{"id": lzma.FILTER_LZMA2, "preset": 0, "dict_size": 128 << 20}]
with lzma.open("programs.tar.xz", "w", filters=window) as out, tarfile.open(fileobj=out, mode="w") as programs:
    programs.add("bin")
    programs.add("lib")
')
  rm -r "${folder:?}"/{bin,lib}
  (cd "$root" && cp --recursive --parents "${files[@]}" tests/ops/data tests/models/data/tiny_*.gguf "$folder")
  (cd "$root" && git describe --always --dirty 2> /dev/null || printf 'unknown\n') > "$folder/revision"
  size=$(du -sm "$folder" | cut -f1)
  [ "$size" -le 60 ] || die "$folder has $size MiB, and 60 is the limit"
  say "$folder: $size MiB"
}

# ---- run

# One of our programs, with the libraries beside it, and cuBLASLt and cuDNN where PyTorch brought them.
ours() {
  local program=$1
  shift
  LD_LIBRARY_PATH=$libraries "$root/bin/$program" "$@"
}

python_has() { python3 -c "import $1" 2> /dev/null; }

need_gpu() {
  ours tenon devices "$device" > "$scratch/device" 2>&1 || {
    printf '%s\n' "no GPU: $(tail -1 "$scratch/device")"
    return 1
  }
}
need_torch() {
  need_gpu && { python_has torch || {
    echo "no PyTorch"
    return 1
  }; }
}
need_onnx() {
  need_torch && { python_has onnxruntime || {
    echo "no ONNX Runtime"
    return 1
  }; }
}
need_llama() {
  need_gpu && { command -v llama-bench > /dev/null || {
    echo "no llama-bench of llama.cpp"
    return 1
  }; }
}
need_sanitizer() {
  need_gpu && { command -v compute-sanitizer > /dev/null || {
    echo "no compute-sanitizer"
    return 1
  }; }
}

need_ncu() {
  need_gpu && { command -v ncu > /dev/null || {
    echo "no Nsight Compute (ncu)"
    return 1
  }; }
}

# model SHAPE: a file of random weights, made when it is first needed.
model() {
  local file=$scratch/$1.gguf
  [ -e "$file" ] || python3 "$root/scripts/gpu.py" model "$1" "$file" >&2
  printf '%s\n' "$file"
}
random_model_bench() {
  local shape=$1 file
  shift
  file=$(model "$shape") && ours tenon bench "$file" --device "$device" --json "$@"
}
# with KEY COMMAND...: on the device with this key in its URL, too.
with() {
  device=$(keyed "$1")
  shift
  "$@"
}
keyed() {
  local between='?'
  [[ $device != *\?* ]] || between='&'
  printf '%s\n' "$device$between$1"
}
# The time of each kernel of a decode step, or of a prompt: kernels SHAPE SKIPPED OPTIONS...
kernels() {
  local file skipped=$2
  file=$(model "$1") || return 1
  shift 2
  LD_LIBRARY_PATH=$libraries ncu --csv --metrics gpu__time_duration.sum --clock-control none --cache-control none \
    --launch-skip "$skipped" --launch-count 500 "$root/bin/tenon" bench "$file" --device "$(keyed graphs=off)" -r 1 "$@" |
    python3 "$root/scripts/gpu.py" kernels
}
llama_bench() {
  local shape=$1 file
  shift
  file=$(model "$shape") && llama-bench -m "$file" -ngl 99 -fa 1 -r 3 -o json "$@"
}
# same_tokens SHAPE: the CPU's greedy continuation in f32.
same_tokens() {
  local file cpu gpu
  file=$(model "$1") || return 1
  cpu=$(ours tenon generate "$file" -p "token 17" --temp 0 -n 24 --precision exact) || return 1
  gpu=$(ours tenon generate "$file" -p "token 17" --temp 0 -n 24 --precision exact --device "$device") || return 1
  printf 'cpu  %s\n%s %s\n' "$cpu" "$device" "$gpu"
  [ "$cpu" = "$gpu" ]
}

describe() {
  ours tenon devices "$device"
  nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.max.sm,clocks.max.mem --format=csv,noheader || true
  cat "$root/revision"
}
# one_test LOG SHARD NAME: in a process of its own, since an error of a device stays.
one_test() {
  local status=0
  TENON_TEST_SHARD=$2 ours test_cuda "$3" > "$1" 2>&1 || status=$?
  [ "$status" -eq 0 ] || printf 'failed: %s (%s), exit status %s\n' "$3" "$2" "$status"
  cat "$1"
  return "$status"
}
# Every test that a GPU passes, fourteen at a time; the conformance suite in eight parts.
conformance() {
  local name part count=0 failed=0 tests=() at_once=14
  export TENON_TEST_CUDA_DEVICE=$device$1
  mapfile -t tests < <(ours test_cuda --list-test-names-only '[gpu]' | sed 's/[][,]/\\&/g' || true)
  for name in "${tests[@]}"; do
    local parts=(0/1)
    [[ $name != *"conformance suite"* ]] || parts=({0..7}/8)
    for part in "${parts[@]}"; do
      [ "$count" -lt "$at_once" ] || wait -n || failed=1
      count=$((count + 1))
      one_test "$scratch/test.$count.log" "$part" "$name" &
    done
  done
  for ((part = count < at_once ? count : at_once; part > 0; part--)); do wait -n || failed=1; done
  printf '%d processes, of %d tests\n' "$count" "${#tests[@]}"
  return "$failed"
}
tests_of() { TENON_TEST_CUDA_DEVICE=$device ours test_cuda "$1"; }
programs_random() { TENON_TEST_CUDA_DEVICE=$device ours random_programs --way cuda --count 400; }
plugin() { ours test_cuda '*plugin*'; }
memcheck() {
  TENON_TEST_CUDA_DEVICE=$device LD_LIBRARY_PATH=$libraries compute-sanitizer --tool memcheck --report-api-errors no --error-exitcode 3 \
    "$root/bin/test_cuda" '[gpu][models]'
}
racecheck() {
  TENON_TEST_CUDA_DEVICE=$device LD_LIBRARY_PATH=$libraries compute-sanitizer --tool racecheck --error-exitcode 3 \
    "$root/bin/test_cuda" '[gpu][weights],[gpu][attention]'
}
bench() { ours bench_cuda --device "$device" --json "$@"; }
peers() { python3 "$root/benchmarks/cuda_peers.py" "$@"; }

# NAME | limit in seconds | what it needs | command: the most telling first.
steps='
device              |  20 | need_gpu       | describe
conformance         | 240 | need_gpu       | conformance ?libraries=off
libraries           | 180 | need_gpu       | conformance ?libraries=on
limits              |  30 | need_gpu       | bench limits
tokens-smollm2      |  60 | need_gpu       | same_tokens smollm2-q4_1
decode-8b-q4_k_m    | 120 | need_gpu       | random_model_bench 8b-q4_k_m -p 512 -n 64 -r 3
digits              |  60 | need_gpu       | with digits=on tests_of [gpu][weights]
decode-digits       |  60 | need_gpu       | with digits=on random_model_bench 8b-q4_k_m -p 512 -n 64 -r 3
gemv-digits         |  60 | need_gpu       | with digits=on bench gemv
kernels-digits      |  60 | need_ncu       | with digits=on kernels 8b-q4_k_m 1500 -p 16 -n 8
decode-no-overlap   |  30 | need_gpu       | with overlap=off random_model_bench 8b-q4_k_m -p 512 -n 64 -r 3
gemv                |  60 | need_gpu       | bench gemv
kernels-decode      |  60 | need_ncu       | kernels 8b-q4_k_m 1500 -p 16 -n 8
kernels-prefill     |  60 | need_ncu       | kernels 8b-q4_k_m 500 -p 512 -n 0
kernels-smollm2     |  60 | need_ncu       | kernels smollm2-q4_1 1500 -p 16 -n 8
decode-8b-bf16      | 180 | need_gpu       | random_model_bench 8b-bf16 -p 512 -n 64 -r 3
prefill-4096        |  90 | need_gpu       | random_model_bench 8b-bf16 -p 4096 -n 0 -r 3
batch               |  60 | need_gpu       | bench batch
gemm                |  60 | need_gpu       | bench gemm
attention           |  60 | need_gpu       | bench attention
points              |  30 | need_gpu       | bench points
order               |  60 | need_gpu       | bench order
resnet              |  90 | need_gpu       | bench resnet
decode-smollm2      |  40 | need_gpu       | random_model_bench smollm2-q4_1 -p 512 -n 128 -r 3
decode-gemma3       |  60 | need_gpu       | random_model_bench gemma3-q8_0 -p 512 -n 128 -r 3
torch-gemm          |  60 | need_torch     | peers gemm
torch-attention     |  60 | need_torch     | peers attention
torch-points        |  30 | need_torch     | peers points
torch-order         |  40 | need_torch     | peers order
torch-resnet        |  60 | need_torch     | peers resnet
onnx-resnet         |  90 | need_onnx      | peers resnet_onnx
llama-8b-q4_k_m     | 120 | need_llama     | llama_bench 8b-q4_k_m -p 512 -n 64
llama-smollm2       |  60 | need_llama     | llama_bench smollm2-q4_1 -p 512 -n 128
memcheck            | 180 | need_sanitizer | memcheck
tokens-gemma3       |  90 | need_gpu       | same_tokens gemma3-q8_0
random-programs     |  90 | need_gpu       | programs_random
racecheck           | 180 | need_sanitizer | racecheck
plugin              |  20 | need_gpu       | plugin
'

# run_step NAME LIMIT NEED COMMAND...: its output and its outcome in $results, once.
run_step() {
  local name=$1 limit=$2 need=$3 why status left begin=$SECONDS
  shift 3
  if [ -e "$results/$name.status" ]; then
    say "$name: $(cat "$results/$name.status") (earlier)"
    return 0
  fi
  if ! why=$("$need"); then
    say "$name: skipped: $why"
    printf 'skipped: %s\n' "$why" > "$results/$name.status"
    return 0
  fi
  left=$((deadline - SECONDS))
  if [ "$left" -lt 10 ]; then
    say "$name: no time is left; run it again to go on"
    return 0
  fi
  status=0
  timeout --kill-after 5 $((limit < left ? limit : left)) "${BASH:-bash}" "$root/scripts/gpu.sh" step "$results" "$@" \
    > "$results/$name.log" 2> "$results/$name.err" || status=$?
  case $status in
    0) why=passed ;;
    124 | 137) why="failed: not done within $((SECONDS - begin)) s" ;;
    *) why="failed: exit status $status: $(tail -1 "$results/$name.err")" ;;
  esac
  say "$name: $why, $((SECONDS - begin)) s"
  # Cut off by the end of all: to be done by the next run.
  [ "$status" -eq 124 ] && [ "$limit" -ge "$left" ] && return 0
  printf '%s\n' "$why" > "$results/$name.status"
}

prepare() {
  mkdir -p "$1"
  results=$(cd "$1" && pwd)
  scratch=${TMPDIR:-/tmp}/tenon-gpu
  mkdir -p "$scratch"
  libraries=$(python3 -c 'import glob, sysconfig
print(":".join(glob.glob(sysconfig.get_path("purelib") + "/nvidia/*/lib")))' 2> /dev/null || true)
  libraries=$root/lib:$libraries:/usr/local/cuda/lib64${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
  cd "$root"
  [ -d bin ] || python3 -c 'import tarfile; tarfile.open("programs.tar.xz").extractall()'
}

run() {
  local name limit need command
  deadline=$((${TENON_GPU_MINUTES:-25} * 60))
  prepare "${1:-${OUT:-$root/results}}"
  date -u +%Y-%m-%d > "$results/date"
  cp "$root/revision" "$results/revision" 2> /dev/null || true
  while IFS='|' read -r name limit need command; do
    [ -n "${name// /}" ] || continue
    read -ra command_words <<< "$command"
    run_step "${name// /}" "${limit// /}" "${need// /}" "${command_words[@]}" < /dev/null
  done <<< "$steps"
  say "results: $results"
  if grep -qs '^failed' "$results"/*.status; then return 1; fi
}

# step RESULTS COMMAND...: one step, in a process that a limit can end.
step() {
  prepare "$1"
  shift
  "$@"
}

case ${1:-} in
  pack | run | step) "$@" ;;
  report) python3 "$root/scripts/gpu.py" report "${2:-$root/results}" "${TENON_GPU_PAGE:-$root/docs/cuda.md}" ;;
  *) die "usage: scripts/gpu.sh pack [FOLDER] | run [RESULTS] | report [RESULTS]" ;;
esac
