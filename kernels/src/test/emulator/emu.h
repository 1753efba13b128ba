// What a kernel sees of the emulator: the CUDA C++ subset that Loupe's kernels use, for g++.
// gpu.cuh includes this file whenever the compiler is not nvcc.
//
// One CUDA thread is one fiber (fiber.h). Everything here is either plain arithmetic or hands over to
// the scheduler (scheduler.h), which runs the other threads until the operation can complete.
#pragma once

// The standard headers come first: build.sh wraps each .cu file in a namespace of its own, and a
// header first included in there would end up inside it.
#include <float.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#include <algorithm>
#include <cfloat>
#include <climits>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>

#define __global__ inline  // so that a kernel that is not registered is not compiled
#define __device__
#define __host__
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __align__(n) alignas(n)
#define __restrict__ __restrict
#define __constant__ static const
// __shared__ is missing on purpose: all shared memory is dynamic (DYN_SMEM), so that its bounds are known.

#include "emu_types.h"
#include "emu_threads.h"
#include "emu_math.h"
#include "emu_ptx.h"
#include "emu_registry.h"
