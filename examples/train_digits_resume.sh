#!/bin/sh
# train_digits_resume.sh PROGRAM: a run that stops after two epochs and is resumed must end with the bits of one that
# did not stop.
set -e
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$1" --epochs 4 --checkpoint "$folder/whole" 2> /dev/null
"$1" --epochs 4 --stop 2 --checkpoint "$folder/half" 2> /dev/null
"$1" --epochs 4 --resume "$folder/half" --checkpoint "$folder/resumed" 2> /dev/null
cmp "$folder/whole" "$folder/resumed"
