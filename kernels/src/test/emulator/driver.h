// The stand-in libcuda.so.1: the driver functions that JCuda and Loupe call, over host memory. Types and numbers are
// those of CUDA's cuda.h, which is not needed to build this.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "registry.h"

typedef uint64_t CUdeviceptr;

enum CUresult {
  CUDA_SUCCESS = 0,
  CUDA_ERROR_INVALID_VALUE = 1,
  CUDA_ERROR_OUT_OF_MEMORY = 2,
  CUDA_ERROR_NOT_INITIALIZED = 3,
  CUDA_ERROR_DEVICE_UNAVAILABLE = 46,
  CUDA_ERROR_NO_DEVICE = 100,
  CUDA_ERROR_INVALID_DEVICE = 101,
  CUDA_ERROR_INVALID_IMAGE = 200,
  CUDA_ERROR_INVALID_CONTEXT = 201,
  CUDA_ERROR_NO_BINARY_FOR_GPU = 209,
  CUDA_ERROR_INVALID_PTX = 218,
  CUDA_ERROR_JIT_COMPILER_NOT_FOUND = 221,
  CUDA_ERROR_UNSUPPORTED_PTX_VERSION = 222,
  CUDA_ERROR_FILE_NOT_FOUND = 301,
  CUDA_ERROR_INVALID_HANDLE = 400,
  CUDA_ERROR_ILLEGAL_STATE = 401,
  CUDA_ERROR_NOT_FOUND = 500,
  CUDA_ERROR_NOT_READY = 600,
  CUDA_ERROR_ILLEGAL_ADDRESS = 700,
  CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES = 701,
  CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED = 712,
  CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED = 713,
  CUDA_ERROR_LAUNCH_FAILED = 719,
  CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE = 720,
  CUDA_ERROR_NOT_SUPPORTED = 801,
  CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED = 900,
  CUDA_ERROR_STREAM_CAPTURE_INVALIDATED = 901,
  CUDA_ERROR_STREAM_CAPTURE_MERGE = 902,
  CUDA_ERROR_STREAM_CAPTURE_UNMATCHED = 903,
  CUDA_ERROR_STREAM_CAPTURE_UNJOINED = 904,
  CUDA_ERROR_STREAM_CAPTURE_ISOLATION = 905,
  CUDA_ERROR_STREAM_CAPTURE_IMPLICIT = 906,
  CUDA_ERROR_CAPTURED_EVENT = 907,
  CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD = 908,
};

#define DRIVER_API extern "C" __attribute__((visibility("default"))) emu::Result

namespace emu {

/** Keeps in mind that a function of the driver has returned an error, until the caller asks what it means. */
void error_returned(const char* function, int code);
/** The caller has shown in this thread that it knows of such errors. */
void error_answered(int code);
void errors_forget();

/** What a driver function returns: in a register, as the int that callers take it for. */
struct Result {
  Result(int code, const char* function = __builtin_FUNCTION()) : code(code) {
    if (code != 0) error_returned(function, code);
  }
  operator int() const { return code; }
  int code;
};

/** The card that the emulator pretends to be; from the environment, or emu_card. */
struct Card {
  int compute_capability = 90;  // EMU_COMPUTE_CAPABILITY, 75 to 120
  int driver_version = 13000;   // EMU_DRIVER_VERSION, as cuDriverGetVersion gives it
  int devices = 1;              // EMU_DEVICES, 0 or 1
  int multiprocessors = 4;
  bool jit = true;  // EMU_JIT, whether the driver has its library that compiles PTX
  /** Whether a driver of this age loads modules and functions in a capture. */
  bool loads_in_captures() const { return driver_version >= 12030; }
  int shared_bytes_opt_in() const;
  int shared_bytes_multiprocessor() const;
  int threads_multiprocessor() const;
  int blocks_multiprocessor() const;
};
extern Card card;

/** All calls take turns. */
extern std::recursive_mutex driver_lock;
/** The error that a failed kernel leaves behind: every later call returns it until the context is destroyed. */
extern CUresult sticky_error;
extern std::string sticky_message;
/** The error after which the driver opens no context in this process any more. */
extern CUresult process_error;

/** What keeps a call that needs a context from going on: not initialised, no context current here, sticky error. */
CUresult driver_state();
/** Ends the context, and the process as far as CUDA is concerned where the driver API says so of the error. */
void fail_context(CUresult error);

/** Calls since the library was loaded, or their counts reset. */
struct Calls {
  uint64_t all, allocations, frees, pinned, unpinned, captures, objects, waits, early;
};
extern Calls calls;

#define DRIVER_ENTER                                                 \
  std::lock_guard<std::recursive_mutex> lock(emu::driver_lock);      \
  emu::calls.all++;                                                  \
  if (CUresult state = emu::driver_state()) return state

/** Frees the allocations of a context (null: of all); called where a context is destroyed. */
void memory_free_all(const void* context);
void modules_free_all(const void* context);
/** Ends the streams of a context, and with them the captures that they began. */
void streams_free_all(const void* context);
/** The context that is current in the calling thread. */
const void* current_context();

/** What the compiler made of a kernel. */
struct Compiled {
  int architecture = 75;  // the PTX's or the cubin's
  int registers = 0;  // of a thread; 0: not known, as in PTX and images of the tests
  int max_threads = 1024;
  int shared_bytes = 0;  // static
};
/** What a module's image holds. */
struct Image {
  bool every_kernel = false;  // an image of the tests, see image.cpp
  size_t bytes = 0;
  std::map<std::string, Compiled> kernels;
};
/** Reads cubin, PTX or the emulator's own form of image; refuses what the pretended card or driver would. */
CUresult image_read(const void* image, Image* result);

/** Waits for what was put on a stream; nothing does so in a capture. */
CUresult stream_finish(void* stream);
bool stream_is_capturing(void* stream);
/** The error of a call that a capture on this stream has no place for; the capture is then invalid. */
CUresult stream_capture_refuses(void* stream);
/** What is put on a stream. */
struct Work {
  std::function<CUresult()> run;
  bool kernel = false;
  std::function<void()> start = nullptr;  // of a kernel that may start while the one before it runs
};
/** Work on a stream: done at once, or when it is waited for, or recorded where the stream is being captured. */
CUresult stream_submit(void* stream, Work work);
inline CUresult stream_submit(void* stream, std::function<CUresult()> run) { return stream_submit(stream, Work{run}); }
/** Runs what late streams have left; returns the sticky error. */
CUresult streams_finish();
/** The error, while a capture forbids calls that wait for the device or allocate; the capture is then invalid. */
CUresult capture_forbids();

}  // namespace emu
