// Comes before a kernel's source in the counting build (build.sh count): its calls of these functions are counted.
#pragma once
#include <math.h>

#include <cmath>

namespace emu {
float counted_fmaf(float a, float b, float c);
float counted_expf(float x);
float counted_exp2f(float x);
}  // namespace emu

#define multiply_add(a, b, c) emu::counted_fmaf(a, b, c)
#define fmaf emu::counted_fmaf
#define expf emu::counted_expf
#define exp2f emu::counted_exp2f
