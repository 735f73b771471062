#!/usr/bin/env bash
# Formats every C++ file of the project; with --check changes nothing and fails where something differs.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

command -v clang-format-19 > /dev/null || die "needs clang-format-19 (Debian package of that name)"
mode=(-i)
[ "${1:-}" = --check ] && mode=(--dry-run -Werror)
cd "$root"
find include src backends tests examples benchmarks tools python \
  \( -name '*.hpp' -o -name '*.cpp' -o -name '*.h' \) -print0 2> /dev/null |
  xargs -0 -P "$(nproc)" -n 16 clang-format-19 --style=file "${mode[@]}"
