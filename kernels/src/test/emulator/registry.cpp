#include "registry.h"

#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <map>

namespace emu {

// a function's variable: registrations run before this file's own variables may have been initialised
static std::map<std::string, KernelInfo>& kernels() {
  static std::map<std::string, KernelInfo> all;
  return all;
}

static bool replacing;
static std::map<std::string, KernelCall> replaced;  // the right ones
static std::string not_replaced;                    // a kernel without one to take the place of

void register_kernel(const char* name, KernelCall call, const int* sizes, int count) {
  KernelInfo info{name, call, std::vector<int>(sizes, sizes + count)};
  if (replacing) {
    auto right = kernels().find(name);
    if (right == kernels().end() || right->second.sizes != info.sizes) {
      not_replaced = name;
    } else {
      replaced[name] = right->second.call;
      right->second.call = call;
    }
  } else if (!kernels().insert({name, info}).second) {
    fprintf(stderr, "emulator: kernel %s is exported twice\n", name);
    abort();
  }
}

std::string replace_kernels(const char* library) {
  for (auto& [name, call] : replaced) kernels()[name].call = call;
  replaced.clear();
  not_replaced.clear();
  if (!library) return "";
  replacing = true;
  void* loaded = dlopen(library, RTLD_NOW | RTLD_LOCAL);
  replacing = false;
  if (!loaded) return dlerror();
  if (!not_replaced.empty()) return std::string(library) + " has " + not_replaced + ", for which there is no kernel here";
  return !replaced.empty() ? "" : std::string(library) + " replaces no kernel: it has none, or has been loaded before";
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
