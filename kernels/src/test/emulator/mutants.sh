#!/bin/bash
# Builds libraries of known bugs (mutants.tsv), each with the kernels that a bug is put in the place of, for EMU_MUTANT:
#   mutants.sh OUTDIR STANDIN [name of a mutant]...
# OUTDIR/NAME.so, against STANDIN/libcuda.so.1. Without names: of all mutants. What has been built stays as long as
# nothing that it is made from changes. Environment: CUDA_SOURCES (folder with the real sources), EMU_JOBS (mutants at
# once, 2).
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
usage="usage: mutants.sh OUTDIR STANDIN [mutant]..."
out=${1:?$usage} standin=${2:?$usage}
shift 2
sources=$(cd "${CUDA_SOURCES:-$here/../../main/cuda}" && pwd)
jobs=${EMU_JOBS:-2}
mkdir -p "$out"
out=$(cd "$out" && pwd)
made_of=$( (cd "$sources" && cat -- *; cat "$here"/emu*.h "$here"/{build,mutants}.sh) | sha256sum)

build() {  # NAME FILE SCRIPT KERNELS
  local dir=$out/$1 hash unit
  hash=$(printf '%s\n' "$made_of" "$@" | sha256sum)
  [ "$(cat "$dir.hash" 2>/dev/null)" != "$hash" ] || return 0
  rm -rf "$dir" "$dir".*
  cp -r "$sources" "$dir"
  sed -i -e "$3" "$dir/$2"
  if cmp -s "$sources/$2" "$dir/$2"; then
    echo "mutants.sh: $1 changes nothing: $2 is not what mutants.tsv expects" >&2
    return 1
  fi
  unit=$2
  [[ $2 == *.cu ]] || unit=$(unit_of "$4")
  CUDA_SOURCES=$dir EMU_FLAGS="-DEMU_ONLY=\"$4\"" "$here/build.sh" "$standin" rel "$dir/$unit" "$dir.so"
  rm -rf "$dir" "$dir.so.o" "$dir.so.d"
  echo "$hash" >"$dir.hash"
}

# The file of a family: of those whose name the kernels' begins with, the longest.
unit_of() {  # KERNELS
  local file name best=
  for file in "$sources"/*.cu; do
    name=$(basename "$file" .cu)
    if [[ $1 == "$name"_* && ${#name} -gt ${#best} ]]; then best=$name; fi
  done
  echo "${best:-attention}.cu"
}

failed=0
while IFS=$'\t' read -r name file script kernels _; do
  [[ $name == \#* || -z $name ]] && continue
  [ $# -eq 0 ] || [[ " $* " == *" $name "* ]] || continue
  while [ "$(jobs -rp | wc -l)" -ge "$jobs" ]; do wait -n || failed=1; done
  build "$name" "$file" "$script" "$kernels" &
done <"$here/mutants.tsv"
while [ "$(jobs -rp | wc -l)" -gt 0 ]; do wait -n || failed=1; done
[ "$failed" = 0 ]
