// Memory: allocation, copies, fills. Every device address is checked against the live allocations, as a GPU's driver
// checks it.
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>

#include "device_memory.h"
#include "driver.h"
#include "inject.h"

namespace emu {

static std::map<CUdeviceptr, const void*> owners;  // live allocation -> context
struct Pinned {
  const void* context;
  size_t bytes;
  bool ours;  // from cuMemHostAlloc; false: registered
};
static std::map<const char*, Pinned> pinned;  // host memory that the card reaches by itself

void memory_free_all(const void* context) {
  for (auto it = owners.begin(); it != owners.end();) {
    if (!context || it->second == context) {
      device_memory_free(it->first);
      it = owners.erase(it);
    } else {
      ++it;
    }
  }
  for (auto it = pinned.begin(); it != pinned.end();) {
    if (!context || it->second.context == context) {
      if (it->second.ours) free(const_cast<char*>(it->first));
      it = pinned.erase(it);
    } else {
      ++it;
    }
  }
}

/** Device memory that was there when work was submitted may be gone when a graph does the work again. */
static CUresult still_there(CUdeviceptr address, size_t bytes) {
  return device_memory_contains(address, bytes) ? CUDA_SUCCESS : CUDA_ERROR_ILLEGAL_ADDRESS;
}

/** Fills bytes of device memory with a pattern of 1, 2 or 4 bytes. */
static CUresult fill(void* stream, CUdeviceptr to, const void* pattern, size_t width, size_t count) {
  if (count > SIZE_MAX / width || !device_memory_contains(to, count * width) || to % width) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  uint32_t bits = 0;
  memcpy(&bits, pattern, width);
  return stream_submit(stream, [=] {
    if (CUresult rc = still_there(to, count * width)) return rc;
    char* bytes = reinterpret_cast<char*>(to);
    if (width == 1) {
      memset(bytes, bits, count);
    } else {
      for (size_t i = 0; i < count; i++) memcpy(bytes + i * width, &bits, width);
    }
    return CUDA_SUCCESS;
  });
}

static bool is_pinned(const void* memory, size_t bytes) {
  const char* start = static_cast<const char*>(memory);
  auto next = pinned.upper_bound(start);
  if (next == pinned.begin()) return false;
  auto& [first, p] = *std::prev(next);
  size_t offset = start - first;
  return offset <= p.bytes && bytes <= p.bytes - offset;
}

// A driver reads memory that is not pinned before the call returns, and writes such memory before the call returns; so
// the first goes wrong where somebody relies on the copy's being late, the second never runs beside anything. Neither
// can be recorded.
static CUresult to_device(void* stream, CUdeviceptr to, const void* from, size_t bytes) {
  if (!device_memory_contains(to, bytes) || (bytes && !from)) return CUDA_ERROR_INVALID_VALUE;
  std::shared_ptr<std::vector<char>> snapshot;
  if (!is_pinned(from, bytes)) {
    if (stream_is_capturing(stream)) return stream_capture_refuses(stream);
    const char* first = static_cast<const char*>(from);
    snapshot = std::make_shared<std::vector<char>>(first, first + bytes);
  }
  return stream_submit(stream, [=] {
    if (CUresult rc = still_there(to, bytes)) return rc;
    memmove(reinterpret_cast<void*>(to), snapshot ? snapshot->data() : from, bytes);
    return CUDA_SUCCESS;
  });
}
static CUresult to_host(void* stream, void* to, CUdeviceptr from, size_t bytes) {
  if (!device_memory_contains(from, bytes) || (bytes && !to)) return CUDA_ERROR_INVALID_VALUE;
  bool waits = !is_pinned(to, bytes);
  if (waits && stream_is_capturing(stream)) return stream_capture_refuses(stream);
  CUresult rc = stream_submit(stream, [=] {
    if (CUresult rc = still_there(from, bytes)) return rc;
    memmove(to, reinterpret_cast<const void*>(from), bytes);
    return CUDA_SUCCESS;
  });
  return rc || !waits ? rc : stream_finish(stream);
}
static CUresult on_device(void* stream, CUdeviceptr to, CUdeviceptr from, size_t bytes) {
  if (!device_memory_contains(to, bytes) || !device_memory_contains(from, bytes)) return CUDA_ERROR_INVALID_VALUE;
  return stream_submit(stream, [=] {
    if (CUresult rc = still_there(to, bytes)) return rc;
    if (CUresult rc = still_there(from, bytes)) return rc;
    memmove(reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from), bytes);
    return CUDA_SUCCESS;
  });
}

}  // namespace emu

using namespace emu;

DRIVER_API cuMemAlloc_v2(CUdeviceptr* address, size_t bytes) {
  DRIVER_ENTER;
  calls.allocations++;
  if (!address || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  if (CUresult rc = capture_forbids()) return rc;
  if (CUresult rc = injected_at_allocation()) return rc;
  *address = device_memory_allocate(bytes);
  if (!*address) return CUDA_ERROR_OUT_OF_MEMORY;
  owners[*address] = current_context();
  return CUDA_SUCCESS;
}
DRIVER_API cuMemFree_v2(CUdeviceptr address) {
  DRIVER_ENTER;
  calls.frees++;
  if (address == 0) return CUDA_SUCCESS;
  error_answered(CUDA_ERROR_OUT_OF_MEMORY);
  if (CUresult rc = capture_forbids()) return rc;
  if (CUresult rc = streams_finish()) return rc;  // freeing waits, as on a GPU
  owners.erase(address);
  return device_memory_free(address) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
DRIVER_API cuMemAllocAsync(CUdeviceptr* address, size_t bytes, void*) { return cuMemAlloc_v2(address, bytes); }
DRIVER_API cuMemFreeAsync(CUdeviceptr address, void*) { return cuMemFree_v2(address); }
DRIVER_API cuMemGetInfo_v2(size_t* free_bytes, size_t* total_bytes) {
  DRIVER_ENTER;
  *total_bytes = device_memory_total();
  *free_bytes = device_memory_free_bytes();
  error_answered(CUDA_ERROR_OUT_OF_MEMORY);
  return CUDA_SUCCESS;
}
DRIVER_API cuMemGetAddressRange_v2(CUdeviceptr* start, size_t* bytes, CUdeviceptr address) {
  DRIVER_ENTER;
  uint64_t found;
  size_t size;
  if (!device_memory_range(address, &found, &size)) return CUDA_ERROR_INVALID_VALUE;
  if (start) *start = found;
  if (bytes) *bytes = size;
  return CUDA_SUCCESS;
}

DRIVER_API cuMemHostAlloc(void** memory, size_t bytes, unsigned) {
  DRIVER_ENTER;
  calls.pinned++;
  if (!memory || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  if (CUresult rc = capture_forbids()) return rc;
  if (CUresult rc = injected_at_pinned()) return rc;
  *memory = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
  if (!*memory) return CUDA_ERROR_OUT_OF_MEMORY;
  pinned[static_cast<char*>(*memory)] = {current_context(), bytes, true};
  return CUDA_SUCCESS;
}
DRIVER_API cuMemAllocHost_v2(void** memory, size_t bytes) { return cuMemHostAlloc(memory, bytes, 0); }
/** Kernels reach it where the host does. */
DRIVER_API cuMemHostGetDevicePointer_v2(CUdeviceptr* address, void* memory, unsigned flags) {
  DRIVER_ENTER;
  if (!address || flags || !is_pinned(memory, 1)) return CUDA_ERROR_INVALID_VALUE;
  *address = reinterpret_cast<CUdeviceptr>(memory);
  return CUDA_SUCCESS;
}
DRIVER_API cuMemFreeHost(void* memory) {
  DRIVER_ENTER;
  calls.unpinned++;
  auto found = pinned.find(static_cast<char*>(memory));
  if (found == pinned.end() || !found->second.ours) return CUDA_ERROR_INVALID_VALUE;
  if (CUresult rc = capture_forbids()) return rc;
  if (CUresult rc = streams_finish()) return rc;
  pinned.erase(found);
  free(memory);
  return CUDA_SUCCESS;
}
DRIVER_API cuMemHostRegister_v2(void* memory, size_t bytes, unsigned) {
  DRIVER_ENTER;
  if (!memory || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  if (CUresult rc = capture_forbids()) return rc;
  if (is_pinned(memory, 1)) return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
  pinned[static_cast<char*>(memory)] = {current_context(), bytes, false};
  return CUDA_SUCCESS;
}
DRIVER_API cuMemHostUnregister(void* memory) {
  DRIVER_ENTER;
  auto found = pinned.find(static_cast<char*>(memory));
  if (found == pinned.end() || found->second.ours) return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
  if (CUresult rc = capture_forbids()) return rc;
  if (CUresult rc = streams_finish()) return rc;
  pinned.erase(found);
  return CUDA_SUCCESS;
}

DRIVER_API cuMemcpyHtoD_v2(CUdeviceptr to, const void* from, size_t bytes) {
  DRIVER_ENTER;
  return to_device(nullptr, to, from, bytes);
}
DRIVER_API cuMemcpyDtoH_v2(void* to, CUdeviceptr from, size_t bytes) {
  DRIVER_ENTER;
  return to_host(nullptr, to, from, bytes);
}
DRIVER_API cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
  DRIVER_ENTER;
  return on_device(nullptr, to, from, bytes);
}
DRIVER_API cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void* from, size_t bytes, void* stream) {
  DRIVER_ENTER;
  return to_device(stream, to, from, bytes);
}
DRIVER_API cuMemcpyDtoHAsync_v2(void* to, CUdeviceptr from, size_t bytes, void* stream) {
  DRIVER_ENTER;
  return to_host(stream, to, from, bytes);
}
DRIVER_API cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes, void* stream) {
  DRIVER_ENTER;
  return on_device(stream, to, from, bytes);
}

DRIVER_API cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t count, void* stream) {
  DRIVER_ENTER;
  return fill(stream, to, &value, 1, count);
}
DRIVER_API cuMemsetD16Async(CUdeviceptr to, unsigned short value, size_t count, void* stream) {
  DRIVER_ENTER;
  return fill(stream, to, &value, 2, count);
}
DRIVER_API cuMemsetD32Async(CUdeviceptr to, unsigned value, size_t count, void* stream) {
  DRIVER_ENTER;
  return fill(stream, to, &value, 4, count);
}
DRIVER_API cuMemsetD8_v2(CUdeviceptr to, unsigned char value, size_t n) { return cuMemsetD8Async(to, value, n, nullptr); }
DRIVER_API cuMemsetD16_v2(CUdeviceptr to, unsigned short value, size_t n) {
  return cuMemsetD16Async(to, value, n, nullptr);
}
DRIVER_API cuMemsetD32_v2(CUdeviceptr to, unsigned value, size_t n) { return cuMemsetD32Async(to, value, n, nullptr); }
