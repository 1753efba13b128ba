#include "device_memory.h"

#include <sys/mman.h>

#include <cstdio>
#include <cstring>
#include <deque>
#include <map>
#ifdef EMU_ASAN
#include <sanitizer/asan_interface.h>
#endif

namespace emu {

static const size_t PAGE = 4096;
// A GPU aligns allocations to 256 bytes. Kernels need 16 for vector loads, and the tighter an allocation ends at its
// guard page, the smaller the overrun that faults.
static const size_t ALIGNMENT = 16;
static const size_t QUARANTINE = 2048;  // freed allocations whose addresses are not given out again

struct Allocation {
  size_t bytes, padded, pages;
};
static std::map<uint64_t, Allocation> live;
static std::map<uint64_t, Allocation> freed;
static std::deque<uint64_t> freed_order;
static size_t total = 8ull << 30, used;

// What a driver takes beside what it is asked for. A context with its local memory, heap and queues is some hundred
// megabytes; memory comes from the card 2 MiB at a time, and small allocations share a granule.
static const size_t CONTEXT = 300ull << 20, GRANULE = 2 << 20, SMALL = 1 << 20;
static bool overhead = true;
static size_t contexts, modules, small, granules;

static size_t in_granules(size_t bytes) { return (bytes + GRANULE - 1) / GRANULE * GRANULE; }
static size_t taken() { return overhead ? contexts * CONTEXT + in_granules(modules) + in_granules(small) + granules : used; }

void device_memory_card(size_t bytes, bool with_overhead) {
  total = bytes;
  overhead = with_overhead;
}
size_t device_memory_total() { return total; }
size_t device_memory_used() { return used; }
size_t device_memory_live() { return live.size(); }
size_t device_memory_free_bytes() { return total > taken() ? total - taken() : 0; }

/** Adds to a part of what is taken, unless that makes it more than there is. */
static bool take(size_t* part, long long change) {
  size_t most = total > taken() ? total : taken();
  *part += change;
  if (taken() <= most) return true;
  *part -= change;
  return false;
}
bool device_memory_context(int change) { return take(&contexts, change); }
bool device_memory_module(long long change) { return take(&modules, change); }

/** Counts an allocation, or no longer (-1); false if there is no room for it. */
static bool take_allocation(size_t bytes, int sign) {
  if (bytes > SIZE_MAX / 2) return false;
  bool is_small = bytes <= SMALL;
  size_t& part = is_small ? small : granules;
  size_t change = is_small ? (bytes + 511) / 512 * 512 : in_granules(bytes);
  used += sign * bytes;
  part += sign * change;
  if (sign < 0 || taken() <= total) return true;
  used -= bytes;
  part -= change;
  return false;
}

static char* mapping(uint64_t start, const Allocation& a) {
  return reinterpret_cast<char*>(start) + a.padded - a.pages - PAGE;
}

uint64_t device_memory_allocate(size_t bytes) {
  if (!take_allocation(bytes, 1)) return 0;
  Allocation a;
  a.bytes = bytes;
  a.padded = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
  a.pages = (a.padded + PAGE - 1) / PAGE * PAGE;
  void* mapped = mmap(nullptr, a.pages + 2 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED) {
    take_allocation(bytes, -1);
    return 0;
  }
  char* pages = static_cast<char*>(mapped) + PAGE;
  mprotect(pages, a.pages, PROT_READ | PROT_WRITE);
#ifdef MADV_POPULATE_WRITE
  madvise(pages, a.pages, MADV_POPULATE_WRITE);  // all at once, instead of a fault for each page; Linux 5.14 and newer
#endif
  memset(pages, 0xff, a.pages);
  char* start = pages + a.pages - a.padded;
#ifdef EMU_ASAN
  ASAN_POISON_MEMORY_REGION(pages, a.pages - a.padded);
  ASAN_POISON_MEMORY_REGION(start + bytes, a.padded - bytes);
#endif
  uint64_t address = reinterpret_cast<uint64_t>(start);
  live[address] = a;
  return address;
}

static void unmap_oldest() {
  uint64_t address = freed_order.front();
  freed_order.pop_front();
  const Allocation& a = freed[address];
  munmap(mapping(address, a), a.pages + 2 * PAGE);
  freed.erase(address);
}

bool device_memory_free(uint64_t address) {
  auto found = live.find(address);
  if (found == live.end()) return false;
  const Allocation a = found->second;
  char* pages = mapping(address, a) + PAGE;
#ifdef EMU_ASAN
  ASAN_UNPOISON_MEMORY_REGION(pages, a.pages);
#endif
  madvise(pages, a.pages, MADV_DONTNEED);
  mprotect(pages, a.pages, PROT_NONE);
  take_allocation(a.bytes, -1);
  live.erase(found);
  freed[address] = a;
  freed_order.push_back(address);
  if (freed_order.size() > QUARANTINE) unmap_oldest();
  return true;
}

/** The allocation that starts at or before the address, or end(). */
static auto at_or_before(const std::map<uint64_t, Allocation>& map, uint64_t address) {
  auto next = map.upper_bound(address);
  return next == map.begin() ? map.end() : std::prev(next);
}

bool device_memory_range(uint64_t address, uint64_t* start, size_t* bytes) {
  auto found = at_or_before(live, address);
  if (found == live.end() || address - found->first >= found->second.bytes) return false;
  *start = found->first;
  *bytes = found->second.bytes;
  return true;
}

bool device_memory_contains(uint64_t address, size_t bytes) {
  auto found = at_or_before(live, address);
  if (found == live.end()) return false;
  uint64_t offset = address - found->first;
  return offset <= found->second.bytes && bytes <= found->second.bytes - offset;
}

bool device_memory_maps(uintptr_t address) {
  for (const auto* allocations : {&live, &freed}) {
    auto next = allocations->upper_bound(address);  // an address may lie before the start, in the pages of its allocation
    for (auto found : {next == allocations->begin() ? allocations->end() : std::prev(next), next}) {
      if (found == allocations->end()) continue;
      uintptr_t from = reinterpret_cast<uintptr_t>(mapping(found->first, found->second));
      if (address >= from && address - from < found->second.pages + 2 * PAGE) return true;
    }
  }
  return false;
}

std::string device_memory_describe(uintptr_t address) {
  char text[160];
  auto gone = at_or_before(freed, address);
  if (gone != freed.end() && address - gone->first < gone->second.bytes) {
    snprintf(text, sizeof text, "byte %zu of an allocation of %zu bytes that has been freed",
             static_cast<size_t>(address - gone->first), gone->second.bytes);
    return text;
  }
  auto before = at_or_before(live, address);
  if (before != live.end() && address - before->first < before->second.bytes + (1 << 20)) {
    snprintf(text, sizeof text, "byte %zu of an allocation of %zu bytes", static_cast<size_t>(address - before->first),
             before->second.bytes);
    return text;
  }
  auto after = live.upper_bound(address);
  if (after != live.end() && after->first - address < 1 << 20) {
    snprintf(text, sizeof text, "%zu bytes before an allocation of %zu bytes",
             static_cast<size_t>(after->first - address), after->second.bytes);
    return text;
  }
  snprintf(text, sizeof text, "address %#zx, which belongs to no allocation", static_cast<size_t>(address));
  return text;
}

std::string device_memory_check() {
  for (auto& [start, a] : live) {
    const unsigned char* bytes = reinterpret_cast<const unsigned char*>(start);
#ifdef EMU_ASAN
    continue;  // poisoned: ASan reports the access itself
#endif
    for (size_t i = a.bytes; i < a.padded; i++) {
      if (bytes[i] != 0xff) {
        return "something wrote " + std::to_string(i - a.bytes) + " bytes behind an allocation of " +
               std::to_string(a.bytes) + " bytes";
      }
    }
  }
  return "";
}

}  // namespace emu
