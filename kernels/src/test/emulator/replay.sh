#!/bin/bash
# Runs one launch of every kernel, as the JUnit tests have made it, under AddressSanitizer with UBSan and under
# ThreadSanitizer; a kernel that was not launched is a failure.
#   replay.sh OUTDIR RECORDS [-Dtest=TESTS]
# RECORDS: the folder that EMU_RECORD named. Nothing is replayed where it is empty, or Maven ran chosen tests only.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
out=${1:?usage: replay.sh OUTDIR RECORDS [-Dtest=TESTS]}
records=${2:?} chosen=${3:-}

left_out() { echo "kernels: no kernel runs under the sanitizers: $*"; exit; }
[[ $chosen == "" || $chosen == *'${test}' ]] || left_out "only some tests have run ($chosen)"
[ -n "$(ls -A "$records" 2>/dev/null)" ] || left_out "no test has launched any on the emulator"
pids=() failed=0
for mode in asan tsan; do
  ("$here/build.sh" "$out/$mode" "$mode" && "$out/$mode/harness" -q -r "$records") &
  pids+=($!)
done
for pid in "${pids[@]}"; do wait "$pid" || failed=1; done
exit $failed
