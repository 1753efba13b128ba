// Shared memory of the blocks that exist at once. Each block's ends at a page that cannot be touched, up to the 127
// bytes that its alignment costs; those are checked afterwards.
#include <sys/mman.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "scheduler.h"
#ifdef EMU_ASAN
#include <sanitizer/asan_interface.h>
#endif

namespace emu {

static const size_t PAGE = 4096, ALIGNMENT = 128;

void SharedMemory::prepare(size_t count, unsigned bytes) {
#ifndef EMU_TSAN  // TSan remembers accesses by address: always new memory there
  if (region && slots == count && size == bytes) return;
#endif
  if (region) munmap(region, region_bytes);
  slots = count;
  size = bytes;
  padded = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
  slot_bytes = (padded + PAGE - 1) / PAGE * PAGE + PAGE;
  region_bytes = slots * slot_bytes;
  void* mapped = mmap(nullptr, region_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED) {
    perror("emulator: no memory for shared memory");
    abort();
  }
  region = static_cast<unsigned char*>(mapped);
#ifndef EMU_TSAN
  for (size_t i = 0; i < slots; i++) mprotect(region + (i + 1) * slot_bytes - PAGE, PAGE, PROT_NONE);
#endif
}

unsigned char* SharedMemory::slot(size_t i) {
  unsigned char* start = region + (i + 1) * slot_bytes - PAGE - padded;
#ifdef EMU_ASAN
  ASAN_UNPOISON_MEMORY_REGION(start, padded);
#endif
  memset(start, 0xff, padded);
#ifdef EMU_ASAN
  ASAN_POISON_MEMORY_REGION(start + size, padded - size);
#endif
  return start;
}

std::string SharedMemory::check(size_t i) {
  unsigned char* end = region + (i + 1) * slot_bytes - PAGE;
#ifdef EMU_ASAN
  ASAN_UNPOISON_MEMORY_REGION(end - padded, padded);
#endif
  for (unsigned char* p = end - padded + size; p < end; p++) {
    if (*p != 0xff) {
      return "a block wrote behind its " + std::to_string(size) + " bytes of shared memory, " +
             std::to_string(p - (end - padded + size)) + " bytes after the end";
    }
  }
  return "";
}

}  // namespace emu
