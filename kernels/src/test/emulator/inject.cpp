#include "inject.h"

#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <sstream>

#include "device_memory.h"

namespace emu {

static long long allocations_before = -1, kernels_before = -1, calls_before = -1;
static CUresult kernel_error, call_error;
static bool no_pinned;

/** Counts down to the one that fails; there is one failure for each request. */
static bool due(long long* before) { return *before >= 0 && (*before)-- == 0; }

CUresult injected_at_allocation() { return due(&allocations_before) ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS; }
/**
 * What becomes of a kernel by the environment, which children inherit: EMU_BREAK is a list of NAME:HOW with commas,
 * where NAME is how the kernel's name begins, and HOW is `skip` (it does nothing), `hang`, `die` (the process ends) or
 * the number of an error that ends the context.
 */
static std::string broken(const char* name) {
  static const char* list = getenv("EMU_BREAK");
  if (!list) return "";  // nearly always, and for every launch
  std::istringstream items(list);
  for (std::string item; std::getline(items, item, ',');) {
    size_t colon = item.find(':');
    if (colon != std::string::npos && strncmp(name, item.c_str(), colon) == 0) return item.substr(colon + 1);
  }
  return "";
}

bool injected_skip(const char* name) {
  std::string how = broken(name);
  if (how == "die") abort();
  while (how == "hang") sleep(1);
  return how == "skip";
}
CUresult injected_at_kernel(const char* name) {
  if (int error = atoi(broken(name).c_str())) return static_cast<CUresult>(error);
  return due(&kernels_before) ? kernel_error : CUDA_SUCCESS;
}
bool injected_may_be(const char* name) { return kernels_before >= 0 || !broken(name).empty(); }
CUresult injected_at_pinned() { return no_pinned ? CUDA_ERROR_OUT_OF_MEMORY : injected_at_allocation(); }
CUresult injected_at_call() {
  if (!due(&calls_before)) return CUDA_SUCCESS;
  process_error = call_error;  // it does not come back
  return call_error;
}

OtherMachine other_machine;

}  // namespace emu

using namespace emu;

/** From now on `machine` runs what is launched, or the emulator if it is null. */
DRIVER_API emu_other_machine(OtherMachine machine) {
  std::lock_guard<std::recursive_mutex> lock(driver_lock);
  other_machine = machine;
  return CUDA_SUCCESS;
}

/** Lets an allocation fail as if memory had run out, after so many more that succeed; below 0: none. */
DRIVER_API emu_fail_allocation(long long after) {
  std::lock_guard<std::recursive_mutex> lock(driver_lock);
  allocations_before = after;
  return CUDA_SUCCESS;
}
/** Lets a kernel fail with an error that ends its context, after so many more that succeed; below 0: none. */
DRIVER_API emu_fail_kernel(long long after, int error) {
  std::lock_guard<std::recursive_mutex> lock(driver_lock);
  kernels_before = after;
  kernel_error = static_cast<CUresult>(error);
  return CUDA_SUCCESS;
}
/** Lets the card disappear at a call that needs a context or makes one, after so many more; below 0: not at all. */
DRIVER_API emu_lose_card(long long after, int error) {
  std::lock_guard<std::recursive_mutex> lock(driver_lock);
  calls_before = after;
  call_error = static_cast<CUresult>(error);
  return CUDA_SUCCESS;
}
/** From the next call on: 1, no host memory can be pinned; 0, it can. */
DRIVER_API emu_refuse_pinned(int on) {
  std::lock_guard<std::recursive_mutex> lock(driver_lock);
  no_pinned = on;
  return CUDA_SUCCESS;
}
/** How many more are to succeed, or below 0 if the failure has come or none was asked for. */
extern "C" __attribute__((visibility("default"))) long long emu_allocations_before_failure() {
  std::lock_guard<std::recursive_mutex> lock(driver_lock);
  return allocations_before;
}
/** Bytes of device memory that are allocated, in the whole process. */
extern "C" __attribute__((visibility("default"))) long long emu_used_memory() {
  std::lock_guard<std::recursive_mutex> lock(driver_lock);
  return static_cast<long long>(device_memory_used());
}
