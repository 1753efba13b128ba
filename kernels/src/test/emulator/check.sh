#!/bin/bash
# The emulator's own tests, without the product's kernels: right kernels are right, planted bugs are reported.
#   check.sh OUTDIR [harness|asan|tsan]...    default: all three
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
out=${1:?usage: check.sh OUTDIR [harness|asan|tsan]...}
shift
[ $# -gt 0 ] || set -- harness asan tsan
failed=0
for mode; do
  EMU_KERNELS=0 "$here/build.sh" "$out/$mode" "$mode"
  self=$out/$mode/self
  "$self" -q self || { echo "$mode: FAIL"; failed=1; }
  # Forward and lazy show the first three; a race between blocks is TSan's alone.
  bugs=(bug_first_barrier bug_second_barrier bug_wait_group)
  [ "$mode" = tsan ] && bugs+=(bug_block_race)
  for bug in "${bugs[@]}"; do
    if "$self" -q -s forward -c lazy "$bug" >/dev/null 2>&1; then
      echo "$mode: FAIL: $bug was not found"
      failed=1
    fi
  done
  echo "$mode: done"
done
exit $failed
