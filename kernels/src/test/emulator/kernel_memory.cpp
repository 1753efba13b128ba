// The memory accesses that the emulator makes for a kernel. In its own file because under TSan the emulator is not
// instrumented but these accesses, being the kernel's, must be.
#include <cstring>

namespace emu {

void kernel_copy16(void* to, const void* from, bool valid) {
  if (valid) {
    memcpy(to, from, 16);
  } else {
    memset(to, 0, 16);
  }
}

void kernel_poison16(void* to) { memset(to, 0xff, 16); }  // NaN in every type

}  // namespace emu
