// Words for error messages.
#pragma once
#include <string>

#include "scheduler.h"

namespace emu {
/** Where the threads of a block stand, grouped: "\n  96 threads in __syncthreads at a.cu:12 (0-95)". */
std::string describe_threads(const Block& block);
}  // namespace emu
