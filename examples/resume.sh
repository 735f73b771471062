#!/bin/sh
# resume.sh [--fixed OPTION] OPTION PROGRAM [ARGUMENT ...]: runs a training example for 4 rounds, which OPTION counts. A run
# that stops after two and is resumed must end with the bits of one that did not stop. Refused are a checkpoint whose seed is
# no single number, and another value of the fixed option than the checkpoint's.
set -e
fixed=
if [ "$1" = --fixed ]; then
  fixed=$2
  shift 2
fi
rounds=$1
shift
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

# must_fail STATUS REGEX COMMAND ...
must_fail() {
  expected=$1
  message=$2
  shift 2
  status=0
  "$@" > /dev/null 2> "$folder/message" || status=$?
  if [ "$status" -ne "$expected" ] || ! grep -q -e "$message" "$folder/message"; then
    echo "exit status $status, expected $expected with '$message': $(cat "$folder/message")"
    exit 1
  fi
}

"$@" "$rounds" 4 --checkpoint "$folder/whole" 2> /dev/null
"$@" "$rounds" 4 --stop 2 --checkpoint "$folder/half" 2> /dev/null
"$@" "$rounds" 4 --resume "$folder/half" --checkpoint "$folder/resumed" 2> /dev/null
cmp "$folder/whole" "$folder/resumed"
if cmp -s "$folder/half" "$folder/whole"; then
  echo "the two rounds after the checkpoint changed nothing"
  exit 1
fi

LC_ALL=C sed 's/"seed":{"dtype":"I64","shape":\[1\]/"seed":{"dtype":"I64","shape":[ ]/' "$folder/half" > "$folder/damaged"
must_fail 3 "^BadShape: .*'seed' is i64\[\], not one number" "$@" "$rounds" 4 --resume "$folder/damaged"
if [ -n "$fixed" ]; then
  must_fail 2 "^BadArgument: $fixed: 7, but the checkpoint" "$@" "$rounds" 4 --resume "$folder/half" "$fixed" 7
fi
