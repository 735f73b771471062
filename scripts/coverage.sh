#!/usr/bin/env bash
# Builds Tenon with clang's coverage counters, runs every test, and prints which part of the library's lines and branches they
# reach. A branch is a condition of the source, taken and not taken: the ways of exceptions are none.
#
#   scripts/coverage.sh [FOLDER]
#
# Totals and files, the least covered first, are printed; with FOLDER, every source is written there as HTML, too.
# TENON_CACHE, TENON_BUILDS, TENON_TEST_MODELS, TENON_ORACLE_PYTHON: as for scripts/test.sh.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

[ $# -le 1 ] || die "usage: scripts/coverage.sh [FOLDER]"
llvm=/usr/lib/llvm-19/bin

note() { say "$1: $2"; }

install_packages "${build_packages[@]}" "${test_packages[@]}" "${sanitizer_packages[@]}"
prepare_test_data

configure coverage -DCMAKE_EXE_LINKER_FLAGS=-fuse-ld=lld -DTENON_BENCHMARKS=OFF -DTENON_EXAMPLES=OFF
counts=$builds/coverage/counts
export LLVM_PROFILE_FILE=$counts/%4m.profraw # for the build, too, which runs programs that it has built
build coverage
rm -rf "$counts"
run_tests() {
  ctest --test-dir "$builds/coverage" --parallel "$(jobs)" --output-on-failure --timeout 1800 --no-tests=error "$@" ||
    say "some tests failed: what they reached is counted"
}
run_tests --label-exclude release_only
run_tests --tests-regex '_portable$' # kernels that no machine with AVX2 chooses
"$llvm/llvm-profdata" merge --sparse --output "$counts/all.profdata" "$counts"/*.profraw

# Every program and plugin that has counters, as llvm-cov takes them.
objects=()
while IFS= read -r -d '' file; do
  readelf --section-headers --wide "$file" 2> /dev/null | grep -q __llvm_covmap && objects+=(--object "$file")
done < <(find "$builds/coverage" -type f \( -perm -u+x -o -name '*.so' \) -print0)
files=("$root/include" "$root/src" "$root/backends")

if [ $# -eq 1 ]; then
  "$llvm/llvm-cov" show --format=html --output-dir "$1" --instr-profile "$counts/all.profdata" "${objects[@]}" --sources "${files[@]}"
fi
"$llvm/llvm-cov" export --summary-only --instr-profile "$counts/all.profdata" "${objects[@]}" --sources "${files[@]}" |
  python3 "$root/scripts/coverage_table.py" "$root"
