// A stand-in libcublas over the emulator's host memory: the functions that Loupe calls, with cuBLAS's own conventions
// (matrices column by column, leading dimensions, types by number). FAKE_VERSION is what it says it is, e.g. 120600.
//
// It reads its arguments strictly: what cuBLAS would refuse, it refuses with the same status.
#include <cstdint>
#include <cstring>
#include <set>

#define CUBLAS_API extern "C" __attribute__((visibility("default")))

namespace {

enum Status { SUCCESS = 0, NOT_INITIALIZED = 1, INVALID_VALUE = 7, NOT_SUPPORTED = 15 };
enum Type { R_32F = 0, R_16F = 2, R_16BF = 14 };

struct Handle {
  void* stream = nullptr;
};
std::set<Handle*> handles;
int products;

float load(const void* p, size_t i, int type) {
  if (type == R_32F) return static_cast<const float*>(p)[i];
  if (type == R_16F) return static_cast<float>(static_cast<const _Float16*>(p)[i]);
  uint32_t bits = static_cast<uint32_t>(static_cast<const uint16_t*>(p)[i]) << 16;
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

void store(void* p, size_t i, int type, float value) {
  if (type == R_32F) {
    static_cast<float*>(p)[i] = value;
  } else if (type == R_16F) {
    static_cast<_Float16*>(p)[i] = static_cast<_Float16>(value);
  } else {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    static_cast<uint16_t*>(p)[i] = static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
  }
}

bool known(int type) { return type == R_32F || type == R_16F || type == R_16BF; }

}  // namespace

CUBLAS_API int cublasCreate_v2(Handle** handle) {
  *handle = new Handle;
  handles.insert(*handle);
  return SUCCESS;
}
CUBLAS_API int cublasDestroy_v2(Handle* handle) {
  if (!handles.erase(handle)) return NOT_INITIALIZED;
  delete handle;
  return SUCCESS;
}
CUBLAS_API int cublasSetStream_v2(Handle* handle, void* stream) {
  if (!handles.count(handle)) return NOT_INITIALIZED;
  handle->stream = stream;
  return SUCCESS;
}
CUBLAS_API int cublasGetVersion_v2(Handle* handle, int* version) {
  if (!handles.count(handle)) return NOT_INITIALIZED;
  *version = FAKE_VERSION;
  return SUCCESS;
}

/** C [m, n] = alpha op(A) [m, k] op(B) [k, n] + beta C; C is not read where beta is 0. */
CUBLAS_API int cublasGemmEx(Handle* handle, int op_a, int op_b, int m, int n, int k, const void* alpha, const void* a,
                            int type_a, int lda, const void* b, int type_b, int ldb, const void* beta, void* c,
                            int type_c, int ldc, int compute, int algorithm) {
  if (!handles.count(handle) || !handle->stream) return NOT_INITIALIZED;
  if (op_a < 0 || op_a > 1 || op_b < 0 || op_b > 1 || m < 0 || n < 0 || k < 0) return INVALID_VALUE;
  if (lda < (op_a ? k : m) || ldb < (op_b ? n : k) || ldc < m || !alpha || !beta) return INVALID_VALUE;
  if (!known(type_a) || type_a != type_b || (type_c != type_a && type_c != R_32F)) return NOT_SUPPORTED;
  if (compute != 68 || algorithm != -1) return NOT_SUPPORTED;  // CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT
  float scale, keep;
  memcpy(&scale, alpha, sizeof scale);
  memcpy(&keep, beta, sizeof keep);
  for (int j = 0; j < n; j++) {
    for (int i = 0; i < m; i++) {
      float sum = 0;
      for (int l = 0; l < k; l++) {
        size_t at_a = op_a ? l + static_cast<size_t>(i) * lda : i + static_cast<size_t>(l) * lda;
        size_t at_b = op_b ? j + static_cast<size_t>(l) * ldb : l + static_cast<size_t>(j) * ldb;
        sum += load(a, at_a, type_a) * load(b, at_b, type_b);
      }
      size_t at_c = i + static_cast<size_t>(j) * ldc;
      float old = keep == 0 ? 0 : keep * load(c, at_c, type_c);
      store(c, at_c, type_c, scale * sum + old);
    }
  }
  products++;
  return SUCCESS;
}

// The tests' own: calls of cublasGemmEx that succeeded, handles that are not destroyed.
CUBLAS_API int fakecublas_products() { return products; }
CUBLAS_API int fakecublas_handles() { return static_cast<int>(handles.size()); }
