#!/bin/sh
# run.sh [--model NAME] [--expect REGEX] PROGRAM ARGUMENT ...: runs an example as a test. Passes when the exit status is 0
# and what the program prints, its line ends as spaces, matches the extended regular expression. With --model, @MODEL@
# stands for the model of that name in $TENON_TEST_MODELS; exit status 77 (skipped) where there is none.
expected=
model=
while :; do
  case $1 in
    --model)
      model=${TENON_TEST_MODELS:-}/$2
      if [ -z "${TENON_TEST_MODELS:-}" ] || [ ! -e "$model" ]; then
        echo "SKIPPED: no $2 in TENON_TEST_MODELS"
        exit 77
      fi
      ;;
    --expect) expected=$2 ;;
    *) break ;;
  esac
  shift 2
done
program=$1
shift
for argument in "$@"; do
  shift
  if [ "$argument" = @MODEL@ ]; then argument=$model; fi
  set -- "$@" "$argument"
done
printed=$("$program" "$@")
status=$?
printf '%s\n' "$printed"
if [ "$status" -ne 0 ]; then
  echo "FAILED: exit status $status"
  exit 1
fi
if ! printf '%s' "$printed" | tr '\n' ' ' | grep -Eq -e "$expected"; then
  echo "FAILED: nothing above matches: $expected"
  exit 1
fi
