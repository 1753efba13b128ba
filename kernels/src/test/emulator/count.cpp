// The counting build: how much memory traffic and arithmetic a kernel asks for. Its kernels are compiled with
// -fsanitize=thread, which calls a function at each access to memory; here these functions count, by address. In this
// build the file takes the place of conflicts.cpp, since it counts all bank conflicts, and of kernel_memory.cpp.
//
// Lanes do not run together here: the n-th access of each lane at one place in the code, since the warp last met, counts
// as one request of the warp. That is what a GPU does as long as the lanes have not diverged.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <unordered_map>

#include "device_memory.h"
#include "driver.h"
#include "emu_ptx.h"
#include "scheduler.h"

namespace emu {

/** Counts since the last reset; the order is emu_counts'. */
static struct {
  uint64_t read_sectors, written_sectors;  // of 32 bytes of global memory, before any cache
  uint64_t wavefronts, extra_wavefronts;   // of shared memory; extra: beyond what a conflict-free request needs
  uint64_t fmas, exps;                     // of all lanes
} counts;

float counted_fmaf(float a, float b, float c) {
  counts.fmas++;
  return fmaf(a, b, c);
}
float counted_expf(float x) {
  counts.exps++;
  return expf(x);
}
float counted_exp2f(float x) {
  counts.exps++;
  return exp2f(x);
}

namespace {

const uint64_t SECTOR = 32, BANKS = 32, WORD = 4;

struct Request {
  uint64_t address[32];
  uint32_t lanes = 0;
};

/** What the lanes of a warp did at one place in the code since they last met. */
struct Place {
  unsigned bytes;
  bool shared, write;
  unsigned nth[32] = {};
  std::vector<Request> requests = {};
};

std::unordered_map<const Warp*, std::unordered_map<uint64_t, Place>> places;

/** The global allocation that was touched last. */
uint64_t allocation;
size_t allocation_bytes;

/** False if it is not global memory. Else moves it so that its allocation starts at 256 bytes, as a GPU's do. */
bool find_global(uint64_t* address) {
  uint64_t a = *address;
  if (a - allocation >= allocation_bytes && !device_memory_range(a, &allocation, &allocation_bytes)) return false;
  *address = (allocation + 255) / 256 * 256 + (a - allocation);
  return true;
}

/** The lane's next access at a place; an absent one (cp.async that fills with zeros) keeps its turn. */
void note(uint64_t place, uint64_t address, unsigned bytes, bool shared, bool write, bool present) {
  const CudaThread& t = running();
  unsigned lane = t.view.lane;
  Place& at = places[&t.block->warps[t.warp]].try_emplace(place, Place{bytes, shared, write}).first->second;
  unsigned nth = at.nth[lane]++;
  if (at.requests.size() <= nth) at.requests.resize(nth + 1);
  if (!present) return;
  at.requests[nth].address[lane] = address;
  at.requests[nth].lanes |= 1u << lane;
}

/** Notes an access to global memory or the block's shared memory; all else is the thread's own, registers on a GPU. */
void access(const volatile void* p, unsigned bytes, bool write, const void* caller, uint64_t piece = 0) {
  if (!current) return;  // host code
  uint64_t address = reinterpret_cast<uint64_t>(p);
  uint64_t place = piece << 50 | reinterpret_cast<uint64_t>(caller) << 2 | write;
  uint64_t offset = address - reinterpret_cast<uint64_t>(current->shared);
  if (offset < current->shared_bytes) {
    note(place | 2, offset, bytes, true, write, true);
  } else if (find_global(&address)) {
    note(place, address, bytes, false, write, true);
  }
}

void access_range(const void* p, size_t bytes, bool write, const void* caller) {
  for (size_t i = 0; i < bytes; i += 16) {
    access(static_cast<const char*>(p) + i, std::min<size_t>(16, bytes - i), write, caller, i / 16);
  }
}

/** Sorts the units (sectors or words) that lanes `first` and on touch; returns how many are distinct. */
int distinct_units(const Request& request, unsigned bytes, uint64_t unit, int first, int lanes, uint64_t* units) {
  int n = 0;
  for (int lane = first; lane < first + lanes; lane++) {
    if (!(request.lanes >> lane & 1)) continue;
    uint64_t a = request.address[lane];
    for (uint64_t u = a / unit; u <= (a + bytes - 1) / unit; u++) units[n++] = u;
  }
  std::sort(units, units + n);
  return static_cast<int>(std::unique(units, units + n) - units);
}

/**
 * Shared memory takes 8-byte accesses half a warp at a time and 16-byte ones a quarter. A group takes a wavefront for
 * each different word of the bank that has most of them; lanes that share a word share it at no cost.
 */
void count_shared(const Request& request, unsigned bytes) {
  int group = bytes > 8 ? 8 : bytes > 4 ? 16 : 32;
  for (int first = 0; first < 32; first += group) {
    uint64_t words[32 * 5];
    int n = distinct_units(request, bytes, WORD, first, group, words);
    int in_bank[BANKS] = {}, most = 0;
    for (int i = 0; i < n; i++) most = std::max(most, ++in_bank[words[i] % BANKS]);
    counts.wavefronts += most;
    counts.extra_wavefronts += std::max(0, most - 1);
  }
}

}  // namespace

// Called where the lanes of a warp meet: what they did before is complete.
void count_conflicts(Warp& warp) {
  for (auto& [key, place] : places[&warp]) {
    for (const Request& request : place.requests) {
      if (place.shared) {
        count_shared(request, place.bytes);
      } else {
        uint64_t sectors[32 * 2];
        int n = distinct_units(request, place.bytes, SECTOR, 0, 32, sectors);
        (place.write ? counts.written_sectors : counts.read_sectors) += n;
      }
    }
    place.requests.clear();
    std::fill(place.nth, place.nth + 32, 0);
  }
  allocation_bytes = 0;  // the host may free it before the next launch
}

// Counted with the other accesses here.
void note_shared_access(const void*, Site) {}
int extra_wavefronts(const uint32_t*, int) { return 0; }

// cp.async: a read of global memory and a write of shared memory, where the source says so.
void kernel_copy16(void* to, const void* from, bool valid) {
  const CudaThread& t = running();
  uint64_t place = 1ull << 63 | reinterpret_cast<uint64_t>(t.site.file) << 14 | static_cast<unsigned>(t.site.line) << 2;
  uint64_t source = reinterpret_cast<uint64_t>(from);
  bool global = find_global(&source);
  note(place, source, 16, false, false, valid && global);
  note(place | 3, static_cast<unsigned char*>(to) - current->shared, 16, true, true, true);
  if (valid) {
    memcpy(to, from, 16);
  } else {
    memset(to, 0, 16);
  }
}
void kernel_poison16(void* to) { memset(to, 0xff, 16); }

}  // namespace emu

/** Six counts since the last reset. */
DRIVER_API emu_counts(unsigned long long* values) {
  std::lock_guard<std::recursive_mutex> lock(emu::driver_lock);
  memcpy(values, &emu::counts, sizeof emu::counts);
  return CUDA_SUCCESS;
}
DRIVER_API emu_reset_counts() {
  std::lock_guard<std::recursive_mutex> lock(emu::driver_lock);
  emu::counts = {};
  emu::places.clear();
  return CUDA_SUCCESS;
}

/** The compiler's major version: counts depend on which values it keeps in registers. */
DRIVER_API emu_compiler() { return __GNUC__; }

// ---- what -fsanitize=thread calls ----

#define HERE __builtin_return_address(0)
#define COUNTED(bytes)                                                                         \
  extern "C" void __tsan_read##bytes(void* p) { emu::access(p, bytes, false, HERE); }           \
  extern "C" void __tsan_write##bytes(void* p) { emu::access(p, bytes, true, HERE); }           \
  extern "C" void __tsan_unaligned_read##bytes(void* p) { emu::access(p, bytes, false, HERE); } \
  extern "C" void __tsan_unaligned_write##bytes(void* p) { emu::access(p, bytes, true, HERE); }
COUNTED(1)
COUNTED(2)
COUNTED(4)
COUNTED(8)
COUNTED(16)
extern "C" void __tsan_read_range(void* p, size_t bytes) { emu::access_range(p, bytes, false, HERE); }
extern "C" void __tsan_write_range(void* p, size_t bytes) { emu::access_range(p, bytes, true, HERE); }
extern "C" void __tsan_init() {}

// Atomics do what they must and are not counted: how a GPU takes those of a warp to one address depends on the card.
extern "C" unsigned __tsan_atomic32_fetch_add(unsigned* p, unsigned v, int) {
  return __atomic_fetch_add(p, v, __ATOMIC_RELAXED);
}
extern "C" uint64_t __tsan_atomic64_fetch_add(uint64_t* p, uint64_t v, int) {
  return __atomic_fetch_add(p, v, __ATOMIC_RELAXED);
}
