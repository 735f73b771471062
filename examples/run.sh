#!/bin/sh
# run.sh [--model NAME] [--status N] [--expect REGEX] PROGRAM ARGUMENT ...: runs an example as a test. Passes when the exit
# status is N (0) and what the program prints, its line ends as spaces, matches the extended regular expression; where N is
# not 0, its message of the error. With --model, @MODEL@ stands for the model of that name in $TENON_TEST_MODELS; exit status
# 77 (skipped) where there is none.
expected=
expected_status=0
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
    --status) expected_status=$2 ;;
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
if [ "$expected_status" -eq 0 ]; then printed=$("$program" "$@"); else printed=$("$program" "$@" 2>&1 > /dev/null); fi
status=$?
printf '%s\n' "$printed"
if [ "$status" -ne "$expected_status" ]; then
  echo "FAILED: exit status $status, expected $expected_status"
  exit 1
fi
if ! printf '%s' "$printed" | tr '\n' ' ' | grep -Eq -e "$expected"; then
  echo "FAILED: nothing above matches: $expected"
  exit 1
fi
