#!/bin/sh
# at_level.sh LEVEL PROGRAM ARGUMENT ...: runs a test held to an instruction set (TENON_CPU_ISA); exit status 77 (skipped)
# where the processor lacks it, since the library would take a lower one.
case $1 in
  portable) needed= ;;
  avx2) needed="avx2 fma f16c" ;;
  avx_vnni) needed="avx2 fma f16c avx_vnni" ;;
  avx512) needed="avx512f avx512bw avx512dq avx512vl" ;;
  avx512_vnni) needed="avx512f avx512bw avx512dq avx512vl avx512_vnni" ;;
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
TENON_CPU_ISA=$1
export TENON_CPU_ISA
shift
exec "$@"
