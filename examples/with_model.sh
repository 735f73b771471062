#!/bin/sh
# with_model.sh NAME PROGRAM ARGUMENT ...: runs the program with @MODEL@ replaced by the model of that
# name in $TENON_TEST_MODELS; exit status 77 (skipped) where there is none.
name=$1
shift
model=${TENON_TEST_MODELS:-}/$name
if [ -z "${TENON_TEST_MODELS:-}" ] || [ ! -e "$model" ]; then
  echo "SKIPPED: no $name in TENON_TEST_MODELS"
  exit 77
fi
program=$1
shift
for argument in "$@"; do
  shift
  if [ "$argument" = @MODEL@ ]; then argument=$model; fi
  set -- "$@" "$argument"
done
exec "$program" "$@"
