// Initialisation, devices, contexts, and the tests' own controls (emu_*).
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "device_memory.h"
#include "driver.h"
#include "inject.h"
#include "scheduler.h"

namespace emu {

Card card;
std::recursive_mutex driver_lock;
Calls calls;

int Card::shared_bytes_opt_in() const {
  switch (compute_capability) {
    case 75: return 64 * 1024;
    case 80: return 163 * 1024;
    case 90: case 100: return 227 * 1024;
    default: return 99 * 1024;
  }
}
int Card::shared_bytes_multiprocessor() const {
  return compute_capability == 75 ? 64 * 1024 : shared_bytes_opt_in() + 1024;
}
int Card::threads_multiprocessor() const {
  switch (compute_capability) {
    case 75: return 1024;
    case 80: case 90: case 100: return 2048;
    default: return 1536;
  }
}
int Card::blocks_multiprocessor() const {
  switch (compute_capability) {
    case 75: case 86: return 16;
    case 89: case 120: return 24;
    default: return 32;
  }
}

namespace {
struct Context {
  bool primary;
};
Context primary{true};
int primary_retained;
bool initialised;
std::string cache_path;  // CUDA_CACHE_PATH when the driver started: a real one reads it then
thread_local std::vector<Context*> stack;  // of current contexts; the last one counts

long long number(const char* variable, long long otherwise) {
  const char* text = getenv(variable);
  return text && *text ? atoll(text) : otherwise;
}

void destroyed(Context* context) {
  streams_finish();
  streams_free_all(context);
  memory_free_all(context);
  modules_free_all(context);
  device_memory_context(-1);
  sticky_error = CUDA_SUCCESS;
  sticky_message.clear();
  for (size_t i = stack.size(); i-- > 0;) {
    if (stack[i] == context) stack.erase(stack.begin() + i);
  }
}
}  // namespace

CUresult driver_state() {
  if (!initialised) return CUDA_ERROR_NOT_INITIALIZED;
  if (CUresult rc = injected_at_call()) fail_context(rc);
  if (stack.empty() || !stack.back()) return CUDA_ERROR_INVALID_CONTEXT;
  return sticky_error;
}

const void* current_context() { return stack.empty() ? nullptr : stack.back(); }

}  // namespace emu

using namespace emu;

// ---- initialisation and devices ----

/** Puts the kernels of a library (build.sh) in the place of the right ones, for somebody to find them out. */
static CUresult replace(const char* library) {
  std::string problem = replace_kernels(library);
  if (problem.empty()) return CUDA_SUCCESS;
  fprintf(stderr, "emulator: %s\n", problem.c_str());
  return CUDA_ERROR_FILE_NOT_FOUND;
}

DRIVER_API cuInit(unsigned flags) {
  std::lock_guard<std::recursive_mutex> lock(driver_lock);
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (!initialised) {
    const char* cache = getenv("CUDA_CACHE_PATH");
    cache_path = cache ? cache : "";
    card.compute_capability = number("EMU_COMPUTE_CAPABILITY", card.compute_capability);
    card.driver_version = number("EMU_DRIVER_VERSION", card.driver_version);
    card.devices = number("EMU_DEVICES", card.devices);
    card.jit = number("EMU_JIT", card.jit);
    device_memory_card(number("EMU_MEMORY", device_memory_total()), true);
    options.schedule = static_cast<Schedule>(number("EMU_SCHEDULE", static_cast<int>(options.schedule)));
    options.seed = number("EMU_SEED", options.seed);
    options.eager_copies = number("EMU_EAGER", options.eager_copies);
  }
  if (card.devices == 0) return CUDA_ERROR_NO_DEVICE;
  const char* mutant = getenv("EMU_MUTANT");
  if (mutant && *mutant && !initialised) {
    if (CUresult rc = replace(mutant)) return rc;
  }
  initialised = true;
  return CUDA_SUCCESS;
}

DRIVER_API cuDriverGetVersion(int* version) {
  if (!version) return CUDA_ERROR_INVALID_VALUE;
  *version = initialised ? card.driver_version : number("EMU_DRIVER_VERSION", card.driver_version);
  return CUDA_SUCCESS;
}

static CUresult check_device(int device) {
  if (!initialised) return CUDA_ERROR_NOT_INITIALIZED;
  return device == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

DRIVER_API cuDeviceGetCount(int* count) {
  if (!initialised) return CUDA_ERROR_NOT_INITIALIZED;
  *count = card.devices;
  return CUDA_SUCCESS;
}
DRIVER_API cuDeviceGet(int* device, int ordinal) {
  if (CUresult rc = check_device(ordinal)) return rc;
  *device = ordinal;
  return CUDA_SUCCESS;
}
DRIVER_API cuDeviceGetName(char* name, int size, int device) {
  if (CUresult rc = check_device(device)) return rc;
  snprintf(name, size, "Loupe CPU emulator");
  return CUDA_SUCCESS;
}
DRIVER_API cuDeviceGetUuid(char* uuid, int device) {
  if (CUresult rc = check_device(device)) return rc;
  memset(uuid, 0, 16);
  return CUDA_SUCCESS;
}
DRIVER_API cuDeviceTotalMem_v2(size_t* bytes, int device) {
  if (CUresult rc = check_device(device)) return rc;
  *bytes = device_memory_total();
  return CUDA_SUCCESS;
}
DRIVER_API cuDeviceComputeCapability(int* major, int* minor, int device) {
  if (CUresult rc = check_device(device)) return rc;
  *major = card.compute_capability / 10;
  *minor = card.compute_capability % 10;
  return CUDA_SUCCESS;
}

DRIVER_API cuDeviceGetAttribute(int* value, int attribute, int device) {
  if (CUresult rc = check_device(device)) return rc;
  switch (attribute) {
    case 1: *value = 1024; break;                                 // max threads per block
    case 2: case 3: *value = 1024; break;                         // max block dim x, y
    case 4: *value = 64; break;                                   // max block dim z
    case 5: *value = 2147483647; break;                           // max grid dim x
    case 6: case 7: *value = 65535; break;                        // max grid dim y, z
    case 8: *value = 48 * 1024; break;                            // shared memory per block without opting in
    case 9: *value = 64 * 1024; break;                            // constant memory
    case 10: *value = 32; break;                                  // warp size
    case 12: case 82: *value = 65536; break;                      // registers per block, per multiprocessor
    case 13: *value = 1410000; break;                             // clock, kHz
    case 14: *value = 512; break;                                 // texture alignment
    case 16: *value = card.multiprocessors; break;
    case 36: *value = 1215000; break;                             // memory clock, kHz
    case 37: *value = 5120; break;                                // memory bus width, bits
    case 38: *value = 40 * 1024 * 1024; break;                    // L2
    case 39: *value = card.threads_multiprocessor(); break;
    case 19: case 31: case 41: case 83: *value = 1; break;        // mapped host memory, concurrent kernels, unified
    case 75: *value = card.compute_capability / 10; break;        // addresses, managed memory
    case 76: *value = card.compute_capability % 10; break;
    case 78: *value = 1; break;                                   // stream priorities
    case 81: *value = card.shared_bytes_multiprocessor(); break;
    case 95: *value = 1; break;                                   // cooperative launch
    case 97: *value = card.shared_bytes_opt_in(); break;
    case 106: *value = card.blocks_multiprocessor(); break;
    case 111: *value = 1024; break;                               // shared memory reserved per block
    default: *value = 0;
  }
  return CUDA_SUCCESS;
}

// ---- contexts ----

DRIVER_API cuCtxCreate_v2(Context** context, unsigned, int device) {
  std::lock_guard<std::recursive_mutex> lock(driver_lock);
  if (CUresult rc = check_device(device)) return rc;
  if (CUresult rc = injected_at_call()) fail_context(rc);
  if (process_error) return process_error;
  if (!device_memory_context(1)) return CUDA_ERROR_OUT_OF_MEMORY;
  *context = new Context{false};
  stack.push_back(*context);
  return CUDA_SUCCESS;
}
DRIVER_API cuCtxDestroy_v2(Context* context) {
  std::lock_guard<std::recursive_mutex> lock(driver_lock);
  if (!context || context->primary) return CUDA_ERROR_INVALID_CONTEXT;
  CUresult before = sticky_error;
  destroyed(context);
  delete context;
  return before;
}
DRIVER_API cuCtxSetCurrent(Context* context) {
  if (!initialised) return CUDA_ERROR_NOT_INITIALIZED;
  if (!stack.empty()) stack.pop_back();
  if (context) stack.push_back(context);
  return CUDA_SUCCESS;
}
DRIVER_API cuCtxGetCurrent(Context** context) {
  if (!initialised) return CUDA_ERROR_NOT_INITIALIZED;
  *context = stack.empty() ? nullptr : stack.back();
  return CUDA_SUCCESS;
}
DRIVER_API cuCtxPushCurrent_v2(Context* context) {
  if (!context) return CUDA_ERROR_INVALID_CONTEXT;
  stack.push_back(context);
  return CUDA_SUCCESS;
}
DRIVER_API cuCtxPopCurrent_v2(Context** context) {
  if (stack.empty()) return CUDA_ERROR_INVALID_CONTEXT;
  if (context) *context = stack.back();
  stack.pop_back();
  return CUDA_SUCCESS;
}
DRIVER_API cuCtxGetDevice(int* device) {
  if (stack.empty()) return CUDA_ERROR_INVALID_CONTEXT;
  *device = 0;
  return CUDA_SUCCESS;
}
DRIVER_API cuCtxGetApiVersion(Context*, unsigned* version) {
  *version = 3020;
  return CUDA_SUCCESS;
}
DRIVER_API cuCtxSynchronize() {
  DRIVER_ENTER;
  calls.waits++;
  if (CUresult rc = capture_forbids()) return rc;
  return streams_finish();
}
DRIVER_API cuCtxGetStreamPriorityRange(int* least, int* greatest) {
  DRIVER_ENTER;
  if (least) *least = 0;
  if (greatest) *greatest = -5;
  return CUDA_SUCCESS;
}
DRIVER_API cuDevicePrimaryCtxRetain(Context** context, int device) {
  std::lock_guard<std::recursive_mutex> lock(driver_lock);
  if (CUresult rc = check_device(device)) return rc;
  if (process_error) return process_error;
  if (primary_retained == 0 && !device_memory_context(1)) return CUDA_ERROR_OUT_OF_MEMORY;
  primary_retained++;
  *context = &primary;
  return CUDA_SUCCESS;
}
DRIVER_API cuDevicePrimaryCtxRelease_v2(int device) {
  std::lock_guard<std::recursive_mutex> lock(driver_lock);
  if (CUresult rc = check_device(device)) return rc;
  if (primary_retained == 0) return CUDA_ERROR_INVALID_CONTEXT;
  if (--primary_retained == 0) destroyed(&primary);
  return CUDA_SUCCESS;
}
DRIVER_API cuDevicePrimaryCtxReset_v2(int device) {
  std::lock_guard<std::recursive_mutex> lock(driver_lock);
  if (CUresult rc = check_device(device)) return rc;
  if (primary_retained > 0) destroyed(&primary);
  return CUDA_SUCCESS;
}
DRIVER_API cuDevicePrimaryCtxGetState(int device, unsigned* flags, int* active) {
  if (CUresult rc = check_device(device)) return rc;
  *flags = 0;
  *active = primary_retained > 0;
  return CUDA_SUCCESS;
}
DRIVER_API cuDevicePrimaryCtxSetFlags_v2(int device, unsigned) { return check_device(device); }

// ---- the tests' controls ----

/** schedule: 0 forward, 1 reverse, 2 random; eager: whether cp.async copies at once. */
DRIVER_API emu_options(int schedule, long long seed, int eager) {
  std::lock_guard<std::recursive_mutex> lock(driver_lock);
  if (schedule < 0 || schedule > 2) return CUDA_ERROR_INVALID_VALUE;
  options = {static_cast<Schedule>(schedule), static_cast<uint64_t>(seed), eager != 0};
  return CUDA_SUCCESS;
}
/** Pretends another card from the next call on; values below 0 leave the setting as it is. Of the memory, a context,
    modules and the granules that allocations come in take nothing: see emu_memory. */
DRIVER_API emu_card(int compute_capability, int driver_version, int devices, long long memory) {
  std::lock_guard<std::recursive_mutex> lock(driver_lock);
  if (compute_capability >= 0) card.compute_capability = compute_capability;
  if (driver_version >= 0) card.driver_version = driver_version;
  if (devices >= 0) card.devices = devices;
  if (memory >= 0) device_memory_card(memory, false);
  return CUDA_SUCCESS;
}
/** Bytes of the card, of which contexts, modules and granules take their part as on a real one. */
DRIVER_API emu_memory(long long bytes) {
  std::lock_guard<std::recursive_mutex> lock(driver_lock);
  device_memory_card(bytes, true);
  return CUDA_SUCCESS;
}
/** Whether the driver has its library that compiles PTX. */
DRIVER_API emu_jit(int there) {
  std::lock_guard<std::recursive_mutex> lock(driver_lock);
  card.jit = there;
  return CUDA_SUCCESS;
}
/** As in a new process: contexts open again. */
DRIVER_API emu_revive() {
  std::lock_guard<std::recursive_mutex> lock(driver_lock);
  process_error = CUDA_SUCCESS;
  return CUDA_SUCCESS;
}
/** As EMU_MUTANT, from the next launch on; null: the right kernels again. */
DRIVER_API emu_replace_kernels(const char* library) {
  std::lock_guard<std::recursive_mutex> lock(driver_lock);
  return replace(library);
}
/** Eight counts since the library was loaded or reset: see Statistics in scheduler.h. */
DRIVER_API emu_stats(unsigned long long* counts) {
  std::lock_guard<std::recursive_mutex> lock(driver_lock);
  memcpy(counts, &statistics, sizeof statistics);
  return CUDA_SUCCESS;
}
DRIVER_API emu_reset_stats() {
  std::lock_guard<std::recursive_mutex> lock(driver_lock);
  statistics = {};
  calls = {};
  return CUDA_SUCCESS;
}
/** Nine counts likewise: all calls that need a context, allocations of device memory, its frees, pinned allocations,
    their frees, captures, streams, events and executable graphs made, waits for the whole context, and kernels that started early. */
DRIVER_API emu_calls(unsigned long long* counts) {
  std::lock_guard<std::recursive_mutex> lock(driver_lock);
  memcpy(counts, &calls, sizeof calls);
  return CUDA_SUCCESS;
}
/** What CUDA_CACHE_PATH was when the driver started. */
extern "C" __attribute__((visibility("default"))) const char* emu_cache_path() { return cache_path.c_str(); }
DRIVER_API emu_live_allocations() {
  std::lock_guard<std::recursive_mutex> lock(driver_lock);
  return static_cast<int>(device_memory_live());
}
/** Forgets the error of a failed kernel, which a real driver cannot do without destroying the context. */
DRIVER_API emu_clear_error() {
  std::lock_guard<std::recursive_mutex> lock(driver_lock);
  sticky_error = CUDA_SUCCESS;
  sticky_message.clear();
  errors_forget();
  return CUDA_SUCCESS;
}
DRIVER_API emu_kernel_count() { return static_cast<int>(kernel_names().size()); }
/** The name of kernel i in alphabetical order; null if there are not so many. */
extern "C" __attribute__((visibility("default"))) const char* emu_kernel_name(int i) {
  static const std::vector<std::string> names = kernel_names();
  return i >= 0 && i < static_cast<int>(names.size()) ? names[i].c_str() : nullptr;
}
/** -1 if there is no such kernel. */
DRIVER_API emu_parameter_count(const char* kernel) {
  const KernelInfo* info = find_kernel(kernel);
  return info ? static_cast<int>(info->sizes.size()) : -1;
}
/** Bytes of parameter i; -1 if there is none. */
DRIVER_API emu_parameter_size(const char* kernel, int i) {
  const KernelInfo* info = find_kernel(kernel);
  return info && i >= 0 && i < static_cast<int>(info->sizes.size()) ? info->sizes[i] : -1;
}
