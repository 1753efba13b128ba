#!/bin/bash
# Builds the emulator and the kernels with g++:
#   build.sh OUTDIR [rel|count|harness|asan|tsan]
# rel: OUTDIR/libcuda.so.1, the stand-in driver, for the loader path of the JVM; in cuda-11.0 and cuda-12.0, without
# the functions that drivers of that age lack
# count: the same, counting what kernels ask of memory and arithmetic (count.cpp)
# others: OUTDIR/harness, the C++ tests, plain or under AddressSanitizer with UBSan, or under ThreadSanitizer; with
# EMU_KERNELS=0 without the product's kernels, and its name is OUTDIR/self
#   build.sh OUTDIR harness|asan|tsan KERNELS.cu PROGRAM
# links PROGRAM from the objects in OUTDIR, with the kernels of this one file instead (for the mutation check)
#   build.sh OUTDIR rel KERNELS.cu LIBRARY.so
# makes a library whose kernels take the place of those of OUTDIR/libcuda.so.1 where EMU_MUTANT names it. With
# EMU_FLAGS='-DEMU_ONLY="_f16"' only those with this in their names are compiled
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
  if [ "$mode" = rel ]; then
    "$cxx" -shared -Wl,-z,defs "$4.o" "$out/libcuda.so.1" -o "$4"
    exit
  fi
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
# Drivers of CUDA 11.0 and 12.0 lack what came later; what a program calls all the same ends it there.
since_11=(cuArrayGet{MemoryRequirements,Plane,SparseProperties} cuMipmappedArrayGet{MemoryRequirements,SparseProperties}
  cuCtxGetId cuStreamGetId cuDeviceGetTexture1DLinearMaxWidth cuEventRecordWithFlags cuGraph{InstantiateWithFlags,Upload}
  cuGraph{Add,}Event{Record,Wait}Node{,GetEvent,SetEvent} cuGraphExecEvent{Record,Wait}NodeSetEvent
  cuGraphExecChildGraphNodeSetParams cuGraphAddKernelNode_v2 cuGraphKernelNode{Get,Set}Params_v2
  cuGraphExecKernelNodeSetParams_v2 cuMem{Alloc,Free}Async cuMemAllocFromPoolAsync cuMemPool{Create,Destroy,TrimTo}
  cuModuleGetLoadingMode cuStream{Wait,Write}Value{32,64}_v2)
since_12=(cuFuncGetParamInfo)
link_driver() {  # FOLDER NAMES: without these
  mkdir -p "$1"
  printf '{ local: %s };\n' "$(printf '%s; ' emu_nothing "${@:2}")" >"$1/names"
  "$cxx" -shared -Wl,-soname,libcuda.so.1 -Wl,-z,defs -Wl,--version-script,"$1/names" "${objects[@]}" \
    -o "$1/libcuda.so.1.new" -lpthread
  mv "$1/libcuda.so.1.new" "$1/libcuda.so.1"  # a JVM may have the old one open
}
if [[ $mode = rel || $mode = count ]] && newer_than "$out/libcuda.so.1" "${objects[@]}"; then
  if [ "$mode" = rel ]; then
    link_driver "$out/cuda-12.0" "${since_12[@]}"
    link_driver "$out/cuda-11.0" "${since_12[@]}" "${since_11[@]}"
  fi
  link_driver "$out"
fi
if [[ $mode != rel && $mode != count ]] && newer_than "$program" "${objects[@]}" "${harness[@]}"; then
  "$cxx" "${link[@]}" "${harness[@]}" "${objects[@]}" -o "$program" -lpthread
fi
