// Version 5: two row tiles a warp.
//
// Idea: at 16 rows a warp, version 4 reads 512 bytes of K or V from shared memory for every two mma,
//   which takes it about as long as the tensor cores take for them. Here a warp owns 32 rows
//   (Br = 128), so what is read serves four mma, and shared memory has half as much to do.
// Changed from version 4: nothing else.
// Limits: half as many blocks, too few for a short prompt on a large card; registers end it at
//   D = 80. Kernels for D up to 64 and 80.
// On sm_100 and sm_120 all 255 registers are taken and a few values spill (resources.tsv).
// Gain: not yet measured.
#pragma once
#include "attention_v4.cuh"

#define ATTENTION_V5(E, element)          \
  ATTENTION_TENSOR(v5, E, element, 64, 2) \
  ATTENTION_TENSOR(v5, E, element, 80, 2)

ATTENTION_V5(__half, f16)
ATTENTION_V5(__nv_bfloat16, bf16)
