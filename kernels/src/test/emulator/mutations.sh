#!/bin/bash
# Applies each known bug of mutants.tsv to a copy of the attention kernels and requires the harness to catch it: by a
# wrong result, a report of the emulator, or one of ThreadSanitizer, which all mutants are built with.
#   mutations.sh WORKDIR [name of a mutant]...
# Environment: CUDA_SOURCES (folder with the real sources), EMU_JOBS (mutants at once, 2).
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
work=${1:?usage: mutations.sh WORKDIR [mutant]...}
shift
sources=${CUDA_SOURCES:-$here/../../main/cuda}
jobs=${EMU_JOBS:-2}
cases=(attention_v3_f32 attention_v3_narrow attention_v4_f16 attention_v4_narrow attention_v4_conflicts)

mkdir -p "$work/mutants"
work=$(cd "$work" && pwd)
base=$work/tsan  # the emulator and the harness, which all mutants share
work=$work/mutants
EMU_KERNELS=0 "$here/build.sh" "$base" tsan

# A folder with the sources, of which only two kernels are instantiated, and the script applied to one file.
prepare() {  # NAME FILE SCRIPT
  local dir=$work/$1
  rm -rf "$dir"
  mkdir -p "$dir"
  cp "$sources"/attention_{common,v3,v4}.cuh "$dir"
  sed -i -e '/^ATTENTION_V3_WIDTHS(/d' "$dir/attention_v3.cuh"
  sed -i -e '/^ATTENTION_V4(/d' "$dir/attention_v4.cuh"
  cat >"$dir/attention.cu" <<'CU'
#include "attention_v3.cuh"
ATTENTION_V3(float, f32, 64)
#include "attention_v4.cuh"
ATTENTION_TENSOR(v4, __half, f16, 64, 1)
CU
  cp "$dir/$2" "$dir/before"
  sed -i -e "$3" "$dir/$2"
}

# Says what became of a mutant, in its file `verdict`: caught, or why not.
run() {  # NAME
  local dir=$work/$1 status=0
  "$here/build.sh" "$base" tsan "$dir/attention.cu" "$dir/harness" >"$dir/log" 2>&1 ||
    { echo "does not compile" >"$dir/verdict"; return; }
  for schedule in reverse random; do
    TSAN_OPTIONS=halt_on_error=1 timeout 100 "$dir/harness" -q -s $schedule -c lazy "${cases[@]}" >>"$dir/log" 2>&1 || status=1
    [ $status = 0 ] || break
  done
  [ $status = 0 ] && echo survived >"$dir/verdict" || echo caught >"$dir/verdict"
}

names=()
start() {  # NAME FILE SCRIPT
  prepare "$@"
  names+=("$1")
  if [ -n "$3" ] && cmp -s "$work/$1/before" "$work/$1/$2"; then
    echo "changes nothing: the source is not what mutants.tsv expects" >"$work/$1/verdict"
    return
  fi
  while [ "$(jobs -rp | wc -l)" -ge "$jobs" ]; do wait -n; done
  run "$1" &
}

start unchanged attention_v3.cuh ""  # must survive, or nothing below means anything
while IFS=$'\t' read -r name file script _; do
  [[ $name == \#* || -z $name ]] && continue
  # the harness runs v3 and v4
  [[ $name != v5-* && ($file == attention_v[34].cuh || $file == attention_common.cuh) ]] || continue
  [ $# -eq 0 ] || [[ " $* " == *" $name "* ]] || continue
  start "$name" "$file" "$script"
done <"$here/mutants.tsv"
wait

failed=0
for name in "${names[@]}"; do
  verdict=$(cat "$work/$name/verdict")
  expected=caught
  [ "$name" = unchanged ] && expected=survived
  how=$(grep -m1 -oE "ThreadSanitizer: data race|FAIL.*" "$work/$name/log" 2>/dev/null | cut -c1-150 || true)
  [ "$verdict" = "$expected" ] && mark=ok || { mark=FAIL; failed=$((failed + 1)); }
  echo "$mark $name: $verdict${how:+ ($how)}"
done
echo "${#names[@]} mutants, $failed not as expected"
[ "$failed" = 0 ]
