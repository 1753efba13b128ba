#!/bin/bash
# Builds the emulator and the kernels with g++:
#   build.sh OUTDIR [rel|count|harness|asan|tsan]
# rel: OUTDIR/libcuda.so.1, the stand-in driver, for the loader path of the JVM
# count: the same, counting what kernels ask of memory and arithmetic (count.cpp)
# others: OUTDIR/harness, the C++ tests, plain or under AddressSanitizer with UBSan, or under ThreadSanitizer; with
# EMU_KERNELS=0 without the product's kernels, and its name is OUTDIR/self
#   build.sh OUTDIR harness|asan|tsan KERNELS.cu PROGRAM
# links PROGRAM from the objects in OUTDIR, with the kernels of this one file instead (for the mutation check)
# Only what has changed is compiled again. Environment: CXX, CUDA_SOURCES (folder with the .cu files), EMU_FLAGS
# (more compiler flags), EMU_JOBS (compilers at once, 2).
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
out=${1:?usage: build.sh OUTDIR [rel|count|harness|asan|tsan]}
mode=${2:-rel}
sources=${CUDA_SOURCES:-$here/../../main/cuda}
cxx=${CXX:-g++}
jobs=${EMU_JOBS:-2}
mkdir -p "$out"

flags=(-std=c++17 -g1 -fPIC -fvisibility=hidden "-fmacro-prefix-map=$here/=" "-fmacro-prefix-map=$sources/="
  "-I$here" "-I$sources" "-I$here/../../main/cuda")
# one instruction set on every x86-64 machine (with the fast half conversions), so results do not depend on which
[ "$(uname -m)" = x86_64 ] && flags+=(-march=x86-64-v3)
flags+=(-ffp-contract=off)  # nor on how far the compiler optimises: replays are compared bit by bit
runtime=(-Wall -Wextra -Werror)
kernel=(-w)  # of kernels and what counts as theirs; nvcc judges their warnings
case $mode in
  rel | harness) flags+=(-O2) ;;
  asan) flags+=(-O1 -fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize-recover=undefined -DEMU_ASAN) ;;
  # TSan must see the accesses of kernels only: the emulator's own are not ordered by barriers
  tsan) flags+=(-O1 -fno-omit-frame-pointer -DEMU_TSAN) kernel+=(-fsanitize=thread) ;;
  # A struct's members are not split, so that a 16-byte access is one; func-entry-exit: calls that count nothing
  count) flags+=(-O1) kernel+=(-fsanitize=thread --param tsan-instrument-func-entry-exit=0 -fno-tree-sra -include count.h) ;;
  *) echo "build.sh: unknown mode $mode: rel, count, harness, asan or tsan" >&2; exit 2 ;;
esac
read -ra more <<<"${EMU_FLAGS:-}"
flags+=("${more[@]}")

# Changed flags mean other objects.
stamp="$cxx ${flags[*]} ${runtime[*]} ${kernel[*]}"
if [ $# -ne 4 ] && [ "$(cat "$out/flags" 2>/dev/null)" != "$stamp" ]; then
  rm -f "$out"/*.o "$out"/*.d
  echo "$stamp" >"$out/flags"
fi

# True if the object is older than a file it was made from. The .d file is make's form, written by the compiler.
stale() {
  local object=$1 depends=${1%.o}.d file
  [ -f "$object" ] && [ -f "$depends" ] || return 0
  for file in $(sed -e 's/^[^:]*://' -e 's/\\$//' "$depends"); do
    [ "$file" -nt "$object" ] || [ ! -e "$file" ] && return 0
  done
  return 1
}

compile_cpp() {  # SOURCE OBJECT FLAGS...
  local source=$1 object=$2; shift 2
  "$cxx" "${flags[@]}" "$@" -MMD -MF "${object%.o}.d" -c "$source" -o "$object"
}
# A family's helpers get a namespace of their own: the same helper in two .cu files is two functions under nvcc.
compile_cu() {  # SOURCE OBJECT FLAGS...
  local source=$1 object=$2 name; shift 2
  name=$(basename "$source" .cu)
  printf '#include "gpu.cuh"\nnamespace family_%s {\n#include "%s"\n}\n' "$name" "$source" |
    "$cxx" "${flags[@]}" "$@" -MMD -MF "${object%.o}.d" -MT "$object" -x c++ -c - -o "$object"
}

link=()
[ "$mode" = asan ] && link+=(-fsanitize=address,undefined)
[ "$mode" = tsan ] && link+=(-fsanitize=thread)
if [ $# -eq 4 ]; then
  compile_cu "$3" "$4.o" "${kernel[@]}"
  others=()
  for object in "$out"/*.o; do [[ $object == *.cu.o ]] || others+=("$object"); done
  "$cxx" "${link[@]}" "$4.o" "${others[@]}" -o "$4" -lpthread
  exit
fi

objects=() harness=() pids=()
failed=0
start() {
  while [ "$(jobs -rp | wc -l)" -ge "$jobs" ]; do wait -n || failed=1; done
  "$@" & pids+=($!)
}
for source in "$here"/*.cpp; do
  name=$(basename "$source" .cpp)
  object=$out/$name.o
  extra=("${runtime[@]}")
  [ "$name" = kernel_memory ] && extra=("${kernel[@]}")
  case $mode:$name in
    count:conflicts | count:kernel_memory | rel:count | rel:harness* | count:harness*) continue ;;  # count.cpp has both
    harness:count | asan:count | tsan:count) continue ;;
    *:harness*) harness+=("$object") ;;
    *) objects+=("$object") ;;
  esac
  if stale "$object"; then start compile_cpp "$source" "$object" "${extra[@]}"; fi
done
program=$out/harness
[ "${EMU_KERNELS:-1}" = 0 ] && program=$out/self
tests=("$here"/../cuda/*.cu)
[ "$mode" = count ] && tests=()  # they are timed, not counted
for source in "$sources"/*.cu "${tests[@]}"; do
  [ -e "$source" ] && [ "$program" = "$out/harness" ] || continue
  object=$out/$(basename "$source" .cu).cu.o
  objects+=("$object")
  if stale "$object"; then start compile_cu "$source" "$object" "${kernel[@]}"; fi
done
for source in "$here"/*.cu; do  # kernels with known counts, and with planted bugs, for the harness
  name=$(basename "$source" .cu)
  object=$out/$name.test.o
  case $mode:$name in
    count:count_kernels) objects+=("$object") ;;
    rel:* | count:* | *:count_kernels) continue ;;
    *) harness+=("$object") ;;
  esac
  if stale "$object"; then start compile_cu "$source" "$object" "${kernel[@]}"; fi
done
for pid in "${pids[@]}"; do wait "$pid" || failed=1; done
[ "$failed" = 0 ] || { echo "build.sh: compilation failed" >&2; exit 1; }

newer_than() {  # TARGET OBJECTS...
  local target=$1 object; shift
  [ -f "$target" ] || return 0
  for object in "$@"; do [ "$object" -nt "$target" ] && return 0; done
  return 1
}
if [[ $mode = rel || $mode = count ]] && newer_than "$out/libcuda.so.1" "${objects[@]}"; then
  "$cxx" -shared -Wl,-soname,libcuda.so.1 -Wl,-z,defs "${objects[@]}" -o "$out/libcuda.so.1.new" -lpthread
  mv "$out/libcuda.so.1.new" "$out/libcuda.so.1"  # a JVM may have the old one open
fi
if [[ $mode != rel && $mode != count ]] && newer_than "$program" "${objects[@]}" "${harness[@]}"; then
  "$cxx" "${link[@]}" "${harness[@]}" "${objects[@]}" -o "$program" -lpthread
fi
