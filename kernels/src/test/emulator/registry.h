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
/**
 * Puts the kernels of a library (build.sh) in the place of those of the same name, and those that an earlier library
 * has replaced back; null: does only this. Returns an empty string or what is wrong with the library.
 */
std::string replace_kernels(const char* library);
/** Null if there is no such kernel. */
const KernelInfo* find_kernel(const std::string& name);
/** Names in alphabetical order. */
std::vector<std::string> kernel_names();
}  // namespace emu
