#!/bin/bash
# The emulator's own tests, in a build of its own: right kernels are right, planted bugs are reported.
#   check.sh OUTDIR [harness|asan|tsan]...    default: all three, without the product's kernels
# With EMU_KERNELS=1 the product's kernels are built in too, and the harness' cases for them run.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
out=${1:?usage: check.sh OUTDIR [harness|asan|tsan]...}
shift
mkdir -p "$out/no-kernels"
out=$(cd "$out" && pwd)
cases=(self)
if [ "${EMU_KERNELS:-0}" = 1 ]; then
  cases=()
else
  export CUDA_SOURCES=$out/no-kernels
fi
failed=0
for mode in "${@:-harness asan tsan}"; do
  for m in $mode; do
    "$here/build.sh" "$out/$m" "$m"
    "$out/$m/harness" -q "${cases[@]}" || { echo "$m: FAIL"; failed=1; }
    # Forward and lazy show the first three; a race between blocks is TSan's alone.
    bugs=(bug_first_barrier bug_second_barrier bug_wait_group)
    [ "$m" = tsan ] && bugs+=(bug_block_race)
    for bug in "${bugs[@]}"; do
      if "$out/$m/harness" -q -s forward -c lazy "$bug" >/dev/null 2>&1; then
        echo "$m: FAIL: $bug was not found"
        failed=1
      fi
    done
    echo "$m: done"
  done
done
exit $failed
