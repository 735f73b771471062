#!/usr/bin/env bash
# Runs clang-tidy 19 with the checks of .clang-tidy; fails where it finds something. Installs it on a Debian
# machine where it is missing.
#
#   scripts/tidy.sh                the library's C++ files that differ from the branch main
#   scripts/tidy.sh --all          src/ and backends/ (about an hour of one processor)
#   scripts/tidy.sh FILE ...       these
#
# Headers are checked as part of the files that include them.
# TENON_BUILDS   builds (default: build/ in this checkout); the compilation database is that of tidy/ there
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

install_packages "${build_packages[@]}" clang-19 clang-tidy-19 || die "cannot install clang-tidy-19"
cd "$root"

# The database names every source of the library; nothing is built.
configure tidy -DCMAKE_CXX_COMPILER=clang++-19 -DTENON_TESTS=OFF -DTENON_BENCHMARKS=OFF -DTENON_EXAMPLES=OFF

case "${1:-}" in
  --all) mapfile -t files < <(git ls-files 'src/*.cpp' 'backends/*.cpp') ;;
  "") mapfile -t files < <(git diff --name-only --diff-filter=d main -- 'src/*.cpp' 'backends/*.cpp') ;;
  *) files=("$@") ;;
esac
[ ${#files[@]} -gt 0 ] || {
  say "nothing to check"
  exit 0
}
say "clang-tidy: ${#files[@]} files"
printf '%s\0' "${files[@]}" |
  xargs -0 -P "$(jobs)" -n 1 clang-tidy-19 -p "$builds/tidy" --quiet --warnings-as-errors='*'
