// Proves the build until there are kernels: doubles n floats in place.
#ifdef __CUDACC__
#define EXPORT_KERNEL(name)
#else
#include "gpu.cuh"
#endif

extern "C" __global__ void probe_v1_f32(float* x /* [n] */, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) {
    x[i] *= 2.0f;
  }
}
EXPORT_KERNEL(probe_v1_f32)
