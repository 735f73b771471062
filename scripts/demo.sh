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

say "building Tenon in $builds/release"
configure release -DTENON_TESTS=OFF -DTENON_BENCHMARKS=OFF || die "cannot configure"
build release || die "cannot build"

if install_packages "${model_packages[@]}" && fetch_models smollm2; then
  say "$model is asked: $question"
  "$builds/release/tools/tenon" generate "$cache/models/$model" --chat --prompt "$question" -n 256
  say "to talk to it: $builds/release/tools/tenon chat $cache/models/$model"
else
  say "no language model to be had here; classifying handwritten digits instead"
  (cd "$root" && "$builds/release/examples/digits")
fi
