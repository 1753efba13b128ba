// Errors: their texts, the one that has ended a context, and those that a caller was given and has not asked about yet.
//
// A program that goes on after an error as if nothing had been is wrong even where its results are right. So each error
// is kept in mind until the thread that was given it shows that it knows: it asks for the text, or, when memory has run
// out, how much is free, or it gives some back. What is left when the process ends makes it fail with code 70.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "driver.h"

DRIVER_API cuGetErrorName(int code, const char** name);

namespace emu {

CUresult sticky_error = CUDA_SUCCESS;
std::string sticky_message;
CUresult process_error = CUDA_SUCCESS;

namespace {
struct Unanswered {
  std::thread::id thread;
  const char* function;
  int code;
};
std::mutex unanswered_lock;
/** Never destroyed: it is read when the process ends. */
std::vector<Unanswered>& unanswered() {
  static auto& all = *new std::vector<Unanswered>;
  return all;
}
int known_sticky;  // an error that was asked about, which every later call returns again

/** What is an answer rather than an error, or says only that another call has returned one. */
bool is_answer(const char* function, int code) {
  return strncmp(function, "cu", 2) != 0 || strncmp(function, "cuGetError", 10) == 0 ||
         (code == CUDA_ERROR_NO_DEVICE && !strcmp(function, "cuInit")) ||
         (code == CUDA_ERROR_NOT_READY && strstr(function, "Query")) || code == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
}

struct Exit {
  ~Exit() {
    if (unanswered().empty()) return;
    for (auto& u : unanswered()) {
      const char* name = nullptr;
      cuGetErrorName(u.code, &name);
      fprintf(stderr, "emulator: %s returned %d (%s), and nobody asked what that means\n", u.function, u.code,
              name ? name : "?");
    }
    fflush(nullptr);
    _exit(70);
  }
} at_exit;
}  // namespace

void error_returned(const char* function, int code) {
  std::lock_guard<std::mutex> lock(unanswered_lock);
  if (is_answer(function, code) || code == known_sticky) return;
  if (getenv("EMU_VERBOSE")) fprintf(stderr, "emulator: %s returns %d\n", function, code);
  unanswered().push_back({std::this_thread::get_id(), function, code});
}
void error_answered(int code) {
  std::lock_guard<std::mutex> lock(unanswered_lock);
  if (code == sticky_error) known_sticky = code;
  auto& all = unanswered();
  for (size_t i = all.size(); i-- > 0;) {
    if (all[i].code == code && all[i].thread == std::this_thread::get_id()) all.erase(all.begin() + i);
  }
}
void errors_forget() {
  std::lock_guard<std::mutex> lock(unanswered_lock);
  unanswered().clear();
}

/** The errors of which the driver API says that the process has to be started again. */
static bool ends_process(CUresult error) {
  return error == 700 || error == 702 || error == 710 || (error >= 714 && error <= 719);
}

void fail_context(CUresult error) {
  if (sticky_error) return;
  sticky_error = error;
  known_sticky = CUDA_SUCCESS;
  if (ends_process(error)) process_error = error;
}

}  // namespace emu

using namespace emu;

static const struct {
  int code;
  const char *name, *text;
} ERRORS[] = {
    {0, "CUDA_SUCCESS", "no error"},
    {1, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {2, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {3, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {46, "CUDA_ERROR_DEVICE_UNAVAILABLE", "CUDA-capable device(s) is/are busy or unavailable"},
    {100, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {101, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {200, "CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"},
    {201, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {209, "CUDA_ERROR_NO_BINARY_FOR_GPU", "no kernel image is available for execution on the device"},
    {214, "CUDA_ERROR_ECC_UNCORRECTABLE", "uncorrectable ECC error encountered"},
    {218, "CUDA_ERROR_INVALID_PTX", "a PTX JIT compilation failed"},
    {221, "CUDA_ERROR_JIT_COMPILER_NOT_FOUND", "PTX JIT compiler library not found"},
    {222, "CUDA_ERROR_UNSUPPORTED_PTX_VERSION", "the provided PTX was compiled with an unsupported toolchain."},
    {301, "CUDA_ERROR_FILE_NOT_FOUND", "file not found"},
    {304, "CUDA_ERROR_OPERATING_SYSTEM", "OS call failed or operation not supported on this OS"},
    {400, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {401, "CUDA_ERROR_ILLEGAL_STATE", "the operation cannot be performed in the present state"},
    {500, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {600, "CUDA_ERROR_NOT_READY", "device not ready"},
    {700, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
    {701, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", "too many resources requested for launch"},
    {712, "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED", "part or all of the requested memory range is already mapped"},
    {713, "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED", "pointer does not correspond to a registered memory region"},
    {719, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
    {720, "CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE", "too many blocks in cooperative launch"},
    {801, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
    {900, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", "operation not permitted when stream is capturing"},
    {901, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED", "operation failed due to a previous error during capture"},
    {902, "CUDA_ERROR_STREAM_CAPTURE_MERGE", "operation would result in a merge of separate capture sequences"},
    {903, "CUDA_ERROR_STREAM_CAPTURE_UNMATCHED", "capture was not ended in the same stream as it began"},
    {904, "CUDA_ERROR_STREAM_CAPTURE_UNJOINED", "capturing stream has unjoined work"},
    {905, "CUDA_ERROR_STREAM_CAPTURE_ISOLATION", "dependency created on uncaptured work in another stream"},
    {906, "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT", "operation would make the legacy stream depend on a capturing blocking stream"},
    {907, "CUDA_ERROR_CAPTURED_EVENT", "operation not permitted on an event last recorded in a capturing stream"},
    {908, "CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD", "attempt to terminate a thread-local capture sequence from another thread"},
    {999, "CUDA_ERROR_UNKNOWN", "unknown error"},
};


DRIVER_API cuGetErrorName(int code, const char** name) {
  for (auto& e : ERRORS) {
    if (e.code == code) {
      *name = e.name;
      return CUDA_SUCCESS;
    }
  }
  *name = nullptr;
  return CUDA_ERROR_INVALID_VALUE;
}
/** As the real one, and for the error of a failed kernel what the emulator found. */
DRIVER_API cuGetErrorString(int code, const char** text) {
  static std::string detailed;
  error_answered(code);
  *text = nullptr;
  for (auto& e : ERRORS) {
    if (e.code == code) *text = e.text;
  }
  if (!*text) return CUDA_ERROR_INVALID_VALUE;
  std::lock_guard<std::recursive_mutex> lock(driver_lock);
  if (code != 0 && code == sticky_error && !sticky_message.empty()) {
    detailed = std::string(*text) + ": " + sticky_message;
    *text = detailed.c_str();
  }
  return CUDA_SUCCESS;
}

// ---- the tests' controls ----

/** The function and error that was returned first of those that nobody has asked about; null if there is none. */
extern "C" __attribute__((visibility("default"))) const char* emu_unreported() {
  static std::string text;
  std::lock_guard<std::mutex> lock(unanswered_lock);
  if (unanswered().empty()) return nullptr;
  const Unanswered& first = unanswered().front();
  text = std::string(first.function) + " returned " + std::to_string(first.code);
  return text.c_str();
}
/** For tests of what the driver refuses, and after a report. */
DRIVER_API emu_forget_errors() {
  errors_forget();
  return CUDA_SUCCESS;
}
