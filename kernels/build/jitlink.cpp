// Assembles PTX to a cubin as a driver of the library's age would:
//   jitlink LIBRARY TARGET PTX CUBIN
// LIBRARY is a libnvJitLink.so.12. What it reports of each kernel's registers goes to standard output, in the form of
// "ptxas -v"; what it complains of, warnings too, goes to standard error and fails.
#include <dlfcn.h>

#include <cstdio>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

namespace {

void* library;
std::string suffix;

// Functions are exported once for each release that had them: nvJitLinkCreate_12_6 and older ones.
template <typename Function>
Function function(const char* name) {
  void* symbol = dlsym(library, ("__nvJitLink" + std::string(name) + suffix).c_str());
  if (!symbol) {
    fprintf(stderr, "jitlink: the library has no __nvJitLink%s%s\n", name, suffix.c_str());
    exit(1);
  }
  return reinterpret_cast<Function>(symbol);
}

using Handle = void*;
using GetSize = int (*)(Handle, size_t*);
using GetBytes = int (*)(Handle, char*);

std::string text(Handle handle, const char* size_name, const char* name) {
  size_t size = 0;
  if (function<GetSize>(size_name)(handle, &size) != 0 || size == 0) return "";
  std::vector<char> bytes(size + 1);
  function<GetBytes>(name)(handle, bytes.data());
  return bytes.data();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) {
    fprintf(stderr, "usage: jitlink LIBRARY TARGET PTX CUBIN\n");
    return 2;
  }
  library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    fprintf(stderr, "jitlink: %s\n", dlerror());
    return 1;
  }
  for (int minor = 9; minor >= 0 && suffix.empty(); minor--) {
    std::string candidate = "_12_" + std::to_string(minor);
    if (dlsym(library, ("__nvJitLinkCreate" + candidate).c_str())) suffix = candidate;
  }

  std::ifstream in(argv[3], std::ios::binary);
  std::string ptx((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  if (ptx.empty()) {
    fprintf(stderr, "jitlink: %s cannot be read or is empty\n", argv[3]);
    return 1;
  }
  const std::string target = "-arch=" + std::string(argv[2]);
  const char* options[] = {target.c_str(), "-verbose"};
  Handle handle = nullptr;
  const int input_ptx = 2;  // NVJITLINK_INPUT_PTX
  int rc = function<int (*)(Handle*, uint32_t, const char**)>("Create")(&handle, 2, options);
  if (rc == 0) {
    rc = function<int (*)(Handle, int, const void*, size_t, const char*)>("AddData")(
        handle, input_ptx, ptx.c_str(), ptx.size() + 1, argv[3]);
  }
  if (rc == 0) rc = function<int (*)(Handle)>("Complete")(handle);
  const std::string info = handle ? text(handle, "GetInfoLogSize", "GetInfoLog") : "";
  const std::string error = handle ? text(handle, "GetErrorLogSize", "GetErrorLog") : "";
  if (rc != 0 || !error.empty() || info.find("warning") != std::string::npos) {
    fprintf(stderr, "jitlink: %s for %s: result %d\n%s%s\n", argv[3], argv[2], rc, error.c_str(), info.c_str());
    return 1;
  }
  size_t size = 0;
  function<GetSize>("GetLinkedCubinSize")(handle, &size);
  std::vector<char> cubin(size);
  rc = function<GetBytes>("GetLinkedCubin")(handle, cubin.data());
  std::ofstream out(argv[4], std::ios::binary);
  out.write(cubin.data(), static_cast<std::streamsize>(size));
  out.close();
  if (rc != 0 || size == 0 || !out) {
    fprintf(stderr, "jitlink: no cubin of %zu bytes for %s could be written to %s\n", size, argv[3], argv[4]);
    return 1;
  }
  fputs(info.c_str(), stdout);
  return 0;
}
