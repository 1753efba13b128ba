// What a test asks for in the calling process: failures, and another machine that runs the kernels.
#pragma once
#include "driver.h"

namespace emu {
/** The error that an allocation, of device or pinned memory, is to fail with. */
CUresult injected_at_allocation();
/** Likewise an allocation of pinned memory, which may be refused for good. */
CUresult injected_at_pinned();
/** The error that a kernel is to end its context with. */
CUresult injected_at_kernel(const char* name);
/** True if a kernel is to do nothing; does not return if it is to hang or to end the process. */
bool injected_skip(const char* name);
/** True if one of these may happen to a kernel. */
bool injected_may_be(const char* name);

/**
 * Runs a kernel: shape is grid x, y, z, block x, y, z, bytes of dynamic shared memory, and whether the launch is
 * cooperative; parameters as in cuLaunchKernel. Returns the error that ends the context, or 0.
 */
typedef int (*OtherMachine)(const char* kernel, const unsigned* shape, void* const* parameters);
/** What runs kernels instead of the emulator, or null. */
extern OtherMachine other_machine;
/** The error that a call finds its card gone with. */
CUresult injected_at_call();
}  // namespace emu
