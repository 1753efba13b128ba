// Failures that a test asks for, in the calling process.
#pragma once
#include "driver.h"

namespace emu {
/** The error that an allocation, of device or pinned memory, is to fail with. */
CUresult injected_at_allocation();
/** The error that a kernel is to end its context with. */
CUresult injected_at_kernel();
/** The error that a call finds its card gone with. */
CUresult injected_at_call();
}  // namespace emu
