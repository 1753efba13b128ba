// Modules, functions, launches.
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "device_memory.h"
#include "driver.h"
#include "inject.h"
#include "record.h"
#include "scheduler.h"

namespace emu {

struct Module;
struct Function {
  const KernelInfo* kernel;
  Module* module;
  Compiled compiled;
  int max_dynamic_shared = 48 * 1024 - compiled.shared_bytes;  // more must be asked for with cuFuncSetAttribute
  bool loaded = false;  // drivers load a kernel when they are asked of it or launch it first
};
struct Module {
  Image image;
  const void* context;
  std::vector<std::unique_ptr<Function>> functions;
};
static std::set<Module*> modules;

static bool known(const Function* f) {
  for (Module* m : modules) {
    for (auto& function : m->functions) {
      if (function.get() == f) return true;
    }
  }
  return false;
}

void modules_free_all(const void* context) {
  for (auto it = modules.begin(); it != modules.end();) {
    if ((*it)->context == context) {
      device_memory_module(-static_cast<long long>((*it)->image.bytes));
      delete *it;
      it = modules.erase(it);
    } else {
      ++it;
    }
  }
}

/** Loads a kernel, which drivers before 12.3 cannot in a capture. */
static CUresult load(Function* f) {
  if (f->loaded) return CUDA_SUCCESS;
  if (!card.loads_in_captures()) {
    if (CUresult rc = capture_forbids()) return rc;
  }
  f->loaded = true;
  return CUDA_SUCCESS;
}

/** The values of a launch's parameters, kept together with their addresses. */
struct Parameters {
  std::vector<unsigned char> bytes;
  std::vector<void*> addresses;
  std::vector<int> sizes;

  /** Lays the parameters out as the driver does: each at a multiple of its size. Returns the offsets and, last, the end. */
  static std::vector<size_t> offsets(const KernelInfo& kernel) {
    std::vector<size_t> at;
    size_t end = 0;
    for (int size : kernel.sizes) {
      end = (end + size - 1) / size * size;
      at.push_back(end);
      end += size;
    }
    at.push_back(end);
    return at;
  }
};

/** Copies the parameters from either of the two forms of cuLaunchKernel. */
static CUresult take_parameters(const KernelInfo& kernel, void** pointers, void** extra, Parameters* result) {
  std::vector<size_t> at = Parameters::offsets(kernel);
  result->bytes.resize(std::max<size_t>(at.back(), 1));
  if (pointers && extra) return CUDA_ERROR_INVALID_VALUE;
  if (extra) {
    const void* buffer = nullptr;
    size_t bytes = 0;
    for (int i = 0; extra[i]; i += 2) {  // CU_LAUNCH_PARAM_END is 0
      if (extra[i] == reinterpret_cast<void*>(1)) buffer = extra[i + 1];                        // ..._BUFFER_POINTER
      if (extra[i] == reinterpret_cast<void*>(2)) bytes = *static_cast<size_t*>(extra[i + 1]);  // ..._BUFFER_SIZE
    }
    if (!buffer || bytes != at.back()) return CUDA_ERROR_INVALID_VALUE;
    memcpy(result->bytes.data(), buffer, bytes);
  } else if (!kernel.sizes.empty()) {
    if (!pointers) return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < kernel.sizes.size(); i++) {
      if (!pointers[i]) return CUDA_ERROR_INVALID_VALUE;
      memcpy(result->bytes.data() + at[i], pointers[i], kernel.sizes[i]);
    }
    // a real driver does not look further; here, a list that ends with null is as long as the kernel's
    if (pointers[kernel.sizes.size()]) return CUDA_ERROR_INVALID_VALUE;
  }
  result->sizes = kernel.sizes;
  for (size_t i = 0; i < kernel.sizes.size(); i++) result->addresses.push_back(result->bytes.data() + at[i]);
  return CUDA_SUCCESS;
}

/** As the CUDA C++ Programming Guide counts: registers go to warps 256 at a time, from four files of 16384. */
static int blocks_per_multiprocessor(const Function& f, int threads, size_t shared) {
  int warps = (threads + 31) / 32;
  int by_threads = card.threads_multiprocessor() / (warps * 32);
  int taken = static_cast<int>(shared) + f.compiled.shared_bytes + (card.compute_capability >= 80 ? 1024 : 1);
  int by_shared = card.shared_bytes_multiprocessor() / taken;
  int by_registers = f.compiled.registers == 0 ? 32 : 4 * (16384 / ((f.compiled.registers * 32 + 255) / 256 * 256)) / warps;
  return std::min({by_threads, by_shared, by_registers, card.blocks_multiprocessor()});
}

/** Kernels with this in their names do nothing: to time what the host does for a launch, and to see it noticed. */
static std::unique_ptr<std::string> kernels_off = getenv("EMU_KERNELS_OFF")
                                                      ? std::make_unique<std::string>(getenv("EMU_KERNELS_OFF"))
                                                      : nullptr;

/** Whether the emulator does not run this kernel, but leaves its work undone. */
static bool is_off(const Launch& launch) {
  return kernels_off && strstr(launch.kernel.c_str(), kernels_off->c_str());
}

static CUresult run_kernel(const Launch& launch, const std::shared_ptr<Parameters>& parameters) {
  if (sticky_error) return sticky_error;
  if (CUresult rc = injected_at_kernel(launch.kernel.c_str())) {
    fail_context(rc);
    return CUDA_SUCCESS;
  }
  if (is_off(launch)) return CUDA_SUCCESS;
  if (injected_skip(launch.kernel.c_str())) return CUDA_SUCCESS;
  if (other_machine) {
    const unsigned shape[] = {launch.grid.x,  launch.grid.y,  launch.grid.z,       launch.block.x,
                              launch.block.y, launch.block.z, launch.shared_bytes, launch.cooperative};
    if (CUresult rc = static_cast<CUresult>(other_machine(launch.kernel.c_str(), shape, launch.parameters))) {
      fail_context(rc);
    }
    return CUDA_SUCCESS;
  }
  Recorder recorder(launch, parameters->sizes);
  std::string problem = run(launch);
  if (problem.empty()) problem = device_memory_check();
  if (problem.empty()) {
    recorder.keep();
  } else {
    fail_context(problem.find("illegal access") != std::string::npos ? CUDA_ERROR_ILLEGAL_ADDRESS
                                                                     : CUDA_ERROR_LAUNCH_FAILED);
    sticky_message = problem;
    forget_early();
    if (getenv("EMU_VERBOSE")) fprintf(stderr, "emulator: %s\n", problem.c_str());
  }
  return CUDA_SUCCESS;  // as on a GPU, the launch is fine and the next call learns of the error
}

enum class How { plain, cooperative, early };

static CUresult submit(Function* f, dim3 grid, dim3 block, unsigned shared, void* stream, void** pointers, void** extra,
                       How how) {
  if (!known(f)) return CUDA_ERROR_INVALID_HANDLE;
  size_t threads = static_cast<size_t>(block.x) * block.y * block.z;
  if (threads == 0 || threads > 1024 || block.x > 1024 || block.y > 1024 || block.z > 64) return CUDA_ERROR_INVALID_VALUE;
  if (grid.x == 0 || grid.y == 0 || grid.z == 0 || grid.x > 0x7fffffffu || grid.y > 65535 || grid.z > 65535) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (threads > static_cast<size_t>(f->compiled.max_threads)) return CUDA_ERROR_INVALID_VALUE;
  if (shared > static_cast<unsigned>(f->max_dynamic_shared)) return CUDA_ERROR_INVALID_VALUE;
  bool cooperative = how == How::cooperative;
  if (cooperative && static_cast<size_t>(grid.x) * grid.y * grid.z >
                         static_cast<size_t>(blocks_per_multiprocessor(*f, threads, shared)) * card.multiprocessors) {
    return CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE;
  }
  if (CUresult rc = load(f)) return rc;
  auto parameters = std::make_shared<Parameters>();
  if (CUresult rc = take_parameters(*f->kernel, pointers, extra, parameters.get())) return rc;
  const KernelInfo* kernel = f->kernel;
  bool early = how == How::early, waits = f->compiled.architecture >= 90;
  auto launch = std::make_shared<Launch>(Launch{kernel->name, kernel->call, grid, block, shared,
                                                parameters->addresses.data(), cooperative, early, waits});
  Work work{[=] { return run_kernel(*launch, parameters); }, true};
  if (early) {
    work.start = [=] {
      bool runs = !sticky_error && !is_off(*launch) && !injected_may_be(launch->kernel.c_str()) && !other_machine;
      if (!runs) return;
      calls.early++;
      start_early(*launch);
    };
  }
  return stream_submit(stream, work);
}

}  // namespace emu

using namespace emu;

// ---- modules and functions ----

DRIVER_API cuModuleLoadData(Module** module, const void* image) {
  DRIVER_ENTER;
  if (!card.loads_in_captures()) {
    if (CUresult rc = capture_forbids()) return rc;
  }
  auto loaded = std::make_unique<Module>();
  loaded->context = current_context();
  if (CUresult rc = image_read(image, &loaded->image)) return rc;
  if (!device_memory_module(loaded->image.bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
  *module = loaded.release();
  modules.insert(*module);
  return CUDA_SUCCESS;
}
static std::atomic<bool> loads_held;
static std::atomic<int> loads_waiting;

/** Options are looked at only to leave log buffers empty and their sizes 0. */
DRIVER_API cuModuleLoadDataEx(Module** module, const void* image, unsigned count, int* names, void** values) {
  loads_waiting++;
  for (int waits = 0; loads_held && waits < 60000; waits++) usleep(1000);  // not for ever, if nobody lets them go
  loads_waiting--;
  for (unsigned i = 0; i < count; i++) {
    bool log_buffer = names[i] == 3 || names[i] == 5, log_size = names[i] == 4 || names[i] == 6;
    if (log_buffer && values[i]) *static_cast<char*>(values[i]) = 0;
    if (log_size) values[i] = nullptr;
  }
  return cuModuleLoadData(module, image);
}
DRIVER_API cuModuleUnload(Module* module) {
  DRIVER_ENTER;
  if (!modules.count(module)) return CUDA_ERROR_INVALID_HANDLE;
  if (CUresult rc = capture_forbids()) return rc;
  if (CUresult rc = streams_finish()) return rc;
  device_memory_module(-static_cast<long long>(module->image.bytes));
  modules.erase(module);
  delete module;
  return CUDA_SUCCESS;
}
DRIVER_API cuModuleGetFunction(Function** function, Module* module, const char* name) {
  DRIVER_ENTER;
  if (!modules.count(module)) return CUDA_ERROR_INVALID_HANDLE;
  if (!name || !*name) return CUDA_ERROR_INVALID_VALUE;
  const KernelInfo* kernel = find_kernel(name);
  auto found = module->image.kernels.find(name);
  bool there = found != module->image.kernels.end();
  if (!kernel || !(module->image.every_kernel || there)) return CUDA_ERROR_NOT_FOUND;
  for (auto& f : module->functions) {
    if (f->kernel == kernel) {
      *function = f.get();
      return CUDA_SUCCESS;
    }
  }
  Compiled compiled = there ? found->second : Compiled{card.compute_capability};
  module->functions.push_back(std::make_unique<Function>(Function{kernel, module, compiled}));
  *function = module->functions.back().get();
  return CUDA_SUCCESS;
}
DRIVER_API cuModuleGetGlobal_v2(CUdeviceptr*, size_t*, Module*, const char*) { return CUDA_ERROR_NOT_FOUND; }

DRIVER_API cuFuncSetAttribute(Function* f, int attribute, int value) {
  DRIVER_ENTER;
  if (!known(f)) return CUDA_ERROR_INVALID_HANDLE;
  if (attribute == 9) return CUDA_SUCCESS;                 // preferred carveout: a hint
  if (attribute != 8) return CUDA_ERROR_INVALID_VALUE;      // 8: max dynamic shared memory
  if (value < 0 || value > card.shared_bytes_opt_in() - f->compiled.shared_bytes) return CUDA_ERROR_INVALID_VALUE;
  f->max_dynamic_shared = value;
  return CUDA_SUCCESS;
}
DRIVER_API cuFuncGetAttribute(int* value, int attribute, Function* f) {
  DRIVER_ENTER;
  if (!known(f)) return CUDA_ERROR_INVALID_HANDLE;
  if (CUresult rc = load(f)) return rc;
  switch (attribute) {
    case 0: *value = f->compiled.max_threads; break;
    case 1: *value = f->compiled.shared_bytes; break;            // static
    case 4: *value = f->compiled.registers; break;               // 0: not known
    case 5: *value = f->compiled.architecture; break;            // what it was compiled for
    case 6: *value = card.compute_capability; break;             // what it runs as
    case 8: *value = f->max_dynamic_shared; break;
    default: *value = 0;                                         // constant, local memory
  }
  return CUDA_SUCCESS;
}
DRIVER_API cuFuncSetCacheConfig(Function*, int) {
  DRIVER_ENTER;
  return CUDA_SUCCESS;
}
DRIVER_API cuFuncGetModule(Module** module, Function* f) {
  DRIVER_ENTER;
  if (!known(f)) return CUDA_ERROR_INVALID_HANDLE;
  *module = f->module;
  return CUDA_SUCCESS;
}
DRIVER_API cuFuncGetParamInfo(Function* f, size_t i, size_t* offset, size_t* bytes) {
  DRIVER_ENTER;
  if (!known(f)) return CUDA_ERROR_INVALID_HANDLE;
  if (i >= f->kernel->sizes.size()) return CUDA_ERROR_INVALID_VALUE;
  *offset = Parameters::offsets(*f->kernel)[i];
  *bytes = f->kernel->sizes[i];
  return CUDA_SUCCESS;
}
DRIVER_API cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, Function* f, int threads, size_t shared) {
  DRIVER_ENTER;
  if (!known(f)) return CUDA_ERROR_INVALID_HANDLE;
  if (threads <= 0) return CUDA_ERROR_INVALID_VALUE;
  *blocks = threads > f->compiled.max_threads || shared > static_cast<size_t>(card.shared_bytes_opt_in())
                ? 0
                : blocks_per_multiprocessor(*f, threads, shared);
  return CUDA_SUCCESS;
}
DRIVER_API cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, Function* f, int threads, size_t shared,
                                                               unsigned) {
  return cuOccupancyMaxActiveBlocksPerMultiprocessor(blocks, f, threads, shared);
}

/** Lets loading take until it is let go on, as the compiler's work takes seconds; how many loads were waiting. */
DRIVER_API emu_hold_loads(int on) {
  int waiting = loads_waiting;
  loads_held = on;
  return waiting;
}
/** See kernels_off; null: all work. */
DRIVER_API emu_kernels_off(const char* part) {
  std::lock_guard<std::recursive_mutex> lock(driver_lock);
  kernels_off = part ? std::make_unique<std::string>(part) : nullptr;
  return CUDA_SUCCESS;
}

// ---- launches ----

DRIVER_API cuLaunchKernel(Function* f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                          unsigned shared, void* stream, void** parameters, void** extra) {
  DRIVER_ENTER;
  return submit(f, {gx, gy, gz}, {bx, by, bz}, shared, stream, parameters, extra, How::plain);
}
DRIVER_API cuLaunchCooperativeKernel(Function* f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                                     unsigned bz, unsigned shared, void* stream, void** parameters) {
  DRIVER_ENTER;
  return submit(f, {gx, gy, gz}, {bx, by, bz}, shared, stream, parameters, nullptr, How::cooperative);
}
/** cuda.h's CUlaunchAttribute and CUlaunchConfig. */
struct LaunchAttribute {
  int id, unused;
  int value[16];
};
struct LaunchConfig {
  unsigned grid[3], block[3], shared;
  void* stream;
  const LaunchAttribute* attributes;
  unsigned count;
};
/** Knows one attribute, programmatic stream serialisation, which cards have from compute capability 9.0 on. */
DRIVER_API cuLaunchKernelEx(const LaunchConfig* config, Function* f, void** parameters, void** extra) {
  DRIVER_ENTER;
  if (!config || (config->count && !config->attributes)) return CUDA_ERROR_INVALID_VALUE;
  How how = How::plain;
  for (unsigned i = 0; i < config->count; i++) {
    const LaunchAttribute& attribute = config->attributes[i];
    if (attribute.id != 6 || card.compute_capability < 90) return CUDA_ERROR_NOT_SUPPORTED;
    if (attribute.value[0]) how = How::early;
  }
  const unsigned *g = config->grid, *b = config->block;
  return submit(f, {g[0], g[1], g[2]}, {b[0], b[1], b[2]}, config->shared, config->stream, parameters, extra, how);
}
