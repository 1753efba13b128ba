// The kernels that EXPORT_KERNEL has registered.
#pragma once
#include <string>
#include <vector>

#include "emu_registry.h"

namespace emu {
struct KernelInfo {
  std::string name;
  KernelCall call;
  std::vector<int> sizes;  // of the parameters, in bytes
};
/** Null if there is no such kernel. */
const KernelInfo* find_kernel(const std::string& name);
/** Names in alphabetical order. */
std::vector<std::string> kernel_names();
}  // namespace emu
