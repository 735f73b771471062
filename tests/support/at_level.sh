#!/bin/sh
# at_level.sh LEVEL PROGRAM ARGUMENT ...: runs a test held to an instruction set (TENON_CPU_ISA); exit status 77 (skipped)
# where the processor lacks it, since the library would take a lower one, and where it has none above it, since the test
# without a level has run with it.
case $1 in
  portable) needed='' above='avx2' ;;
  avx2) needed='avx2 fma f16c' above='avx_vnni|avx512bw' ;;
  avx_vnni) needed='avx2 fma f16c avx_vnni' above='avx512bw' ;;
  avx512) needed='avx512f avx512bw avx512dq avx512vl' above='avx512_vnni' ;;
  avx512_vnni) needed='avx512f avx512bw avx512dq avx512vl avx512_vnni' above='amx_tile' ;;
  *)
    echo "no level $1"
    exit 2
    ;;
esac
for flag in $needed; do
  if ! grep -qw "$flag" /proc/cpuinfo; then
    echo "SKIPPED: this processor has no $flag"
    exit 77
  fi
done
if ! grep -Eqw "$above" /proc/cpuinfo; then
  echo "SKIPPED: $1 is this processor's own level"
  exit 77
fi
TENON_CPU_ISA=$1
export TENON_CPU_ISA
shift
exec "$@"
