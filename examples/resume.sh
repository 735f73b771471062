#!/bin/sh
# resume.sh OPTION PROGRAM [ARGUMENT ...]: runs a training example for 4 rounds, which OPTION counts. A run that stops after
# two and is resumed must end with the bits of one that did not stop.
set -e
rounds=$1
shift
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$@" "$rounds" 4 --checkpoint "$folder/whole" 2> /dev/null
"$@" "$rounds" 4 --stop 2 --checkpoint "$folder/half" 2> /dev/null
"$@" "$rounds" 4 --resume "$folder/half" --checkpoint "$folder/resumed" 2> /dev/null
cmp "$folder/whole" "$folder/resumed"
if cmp -s "$folder/half" "$folder/whole"; then
  echo "the two rounds after the checkpoint changed nothing"
  exit 1
fi
