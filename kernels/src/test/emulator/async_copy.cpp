// cp.async. A real copy lands at any time between its start and the wait for it. Eager mode copies at the start, lazy
// mode at the wait, with NaN in the destination until then: what reads too early sees NaN, and what still reads the
// destination when the copy starts loses its values.
#include "emu_ptx.h"
#include "scheduler.h"

namespace emu {

void check_shared(const void* p, size_t bytes, size_t align, const char* what, Site site) {
  const Thread& t = running().view;
  long offset = static_cast<const unsigned char*>(p) - t.shared;
  if (offset < 0 || offset + bytes > t.shared_bytes) {
    fail("%s at %s:%d: shared memory address out of range: offset %ld, %u bytes in all", what, site.file, site.line,
         offset, t.shared_bytes);
  }
  if (reinterpret_cast<uintptr_t>(p) % align) {
    fail("%s at %s:%d: shared memory address is not a multiple of %zu bytes: offset %ld", what, site.file, site.line,
         align, offset);
  }
}

void async_copy(void* shared, const void* global, bool valid, Site site) {
  CudaThread& t = running();
  t.site = site;
  check_shared(shared, 16, 16, "cp_async16", site);
  if (reinterpret_cast<uintptr_t>(global) % 16) {
    fail("cp_async16 at %s:%d: global address %p is not a multiple of 16 bytes", site.file, site.line, global);
  }
  statistics.async_bytes += valid ? 16 : 0;
  if (options.eager_copies) {
    kernel_copy16(shared, global, valid);
    written_by_copy(shared);
  } else {
    kernel_poison16(shared);
    RuntimeScope scope(t.fiber);
    t.copies.copies.push_back({shared, global, valid});
  }
}

void async_commit(Site site) {
  CudaThread& t = running();
  RuntimeScope scope(t.fiber);
  t.site = site;
  t.copies.group_ends.push_back(t.copies.copies.size());
}

void async_wait(int pending, Site site) {
  CudaThread& t = running();
  t.site = site;
  AsyncCopies& c = t.copies;
  while (c.group_ends.size() - c.groups_done > static_cast<size_t>(pending)) {
    for (size_t end = c.group_ends[c.groups_done++]; c.done < end; c.done++) {
      kernel_copy16(c.copies[c.done].shared, c.copies[c.done].global, c.copies[c.done].valid);
      written_by_copy(c.copies[c.done].shared);
    }
  }
  RuntimeScope scope(t.fiber);
  if (c.done == c.copies.size() && c.groups_done == c.group_ends.size()) c.clear();
}

}  // namespace emu
