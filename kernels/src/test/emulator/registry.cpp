#include "registry.h"

#include <cstdio>
#include <cstdlib>
#include <map>

namespace emu {

// a function's variable: registrations run before this file's own variables may have been initialised
static std::map<std::string, KernelInfo>& kernels() {
  static std::map<std::string, KernelInfo> all;
  return all;
}

void register_kernel(const char* name, KernelCall call, const int* sizes, int count) {
  if (!kernels().insert({name, {name, call, std::vector<int>(sizes, sizes + count)}}).second) {
    fprintf(stderr, "emulator: kernel %s is exported twice\n", name);
    abort();
  }
}

const KernelInfo* find_kernel(const std::string& name) {
  auto found = kernels().find(name);
  return found == kernels().end() ? nullptr : &found->second;
}

std::vector<std::string> kernel_names() {
  std::vector<std::string> names;
  for (auto& [name, info] : kernels()) names.push_back(name);
  return names;
}

}  // namespace emu
