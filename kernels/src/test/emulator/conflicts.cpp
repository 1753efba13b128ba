// Bank conflicts of 16-byte shared accesses. Shared memory has 32 banks of 4 bytes; a warp's 16-byte access is served
// eight lanes at a time, and each group takes one trip ("wavefront") if the eight touch different 16-byte columns of
// the 128-byte rows, or the same address.
#include <algorithm>

#include "emu_ptx.h"
#include "scheduler.h"

namespace emu {

static const uint32_t NOT_ACCESSED = ~0u;

int extra_wavefronts(const uint32_t* offsets, int count) {
  unsigned columns = 0, twice = 0;
  for (int i = 0; i < count; i++) {
    unsigned column = offsets[i] == NOT_ACCESSED ? 0 : 1u << (offsets[i] >> 4 & 7);
    twice |= columns & column;
    columns |= column;
  }
  if (!twice) return 0;  // nearly always
  int worst = 0;
  for (int column = 0; column < 8; column++) {
    uint32_t seen[8];
    int distinct = 0;
    for (int i = 0; i < count; i++) {
      if (offsets[i] == NOT_ACCESSED || (offsets[i] >> 4 & 7) != static_cast<uint32_t>(column)) continue;
      if (std::find(seen, seen + distinct, offsets[i]) == seen + distinct) seen[distinct++] = offsets[i];
    }
    worst = std::max(worst, distinct);
  }
  return std::max(0, worst - 1);
}

// Lanes do not run together here, so the n-th access of each lane at one place in the source counts as one access of
// the warp. That is what a GPU does as long as the lanes have not diverged.
void note_shared_access(const void* p, Site site) {
  CudaThread& t = running();
  RuntimeScope scope(t.fiber);
  t.site = site;
  Warp& warp = t.block->warps[t.warp];
  SharedAccesses* at = nullptr;
  for (SharedAccesses& a : warp.accesses) {
    if (a.site.line == site.line && a.site.file == site.file) at = &a;
  }
  if (!at) {
    warp.accesses.push_back({site, {}, {}});
    at = &warp.accesses.back();
  }
  unsigned nth = at->counts[t.view.lane]++;
  if (at->offsets.size() < (nth + 1) * 32) at->offsets.resize((nth + 1) * 32, NOT_ACCESSED);
  at->offsets[nth * 32 + t.view.lane] = static_cast<const unsigned char*>(p) - t.view.shared;
}

void count_conflicts(Warp& warp) {
  for (SharedAccesses& a : warp.accesses) {
    for (size_t i = 0; i + 8 <= a.offsets.size(); i += 8) {
      statistics.shared_conflicts += extra_wavefronts(&a.offsets[i], 8);
    }
    a.offsets.clear();
    std::fill(a.counts, a.counts + 32, 0);
  }
}

}  // namespace emu
