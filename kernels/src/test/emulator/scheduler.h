// Runs the blocks of a launch: one fiber per CUDA thread, one running at a time, switched only where a thread waits
// (barrier, warp collective, spin). The order in which waiting threads continue is the schedule under test.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "emu_ptx.h"
#include "emu_registry.h"
#include "fiber.h"

namespace emu {

enum class Schedule { forward, reverse, random };

struct Options {
  Schedule schedule = Schedule::forward;
  uint64_t seed = 1;
  bool eager_copies = false;  // cp.async copies at once, instead of when it is waited for
};
extern Options options;

/** Counts since the library was loaded; the order is emu_stats'. */
struct Statistics {
  uint64_t launches, blocks, switches, collectives, ldmatrix_conflicts, shared_conflicts, async_bytes, mmas;
};
extern Statistics statistics;

struct Launch {
  std::string kernel;
  KernelCall call;
  dim3 grid, block;
  unsigned shared_bytes;
  void* const* parameters;
  bool cooperative;
  bool early = false;   // programmatic: it may start while the launch before it on its stream runs
  bool waits = true;    // whether its wait for that launch is more than nothing, which depends on the image
};

/** Runs all blocks; returns an empty string or what went wrong, in words with file and line. */
std::string run(const Launch& launch);

/**
 * Runs the first blocks of a launch up to where they wait for the launch before (wait_for_previous), before that one
 * runs: what they read of it by then is old, and what they write it overwrites. run() goes on with them. As on a card
 * only so many blocks find room beside the launch before; one launch at most is ahead.
 */
void start_early(const Launch& launch);
/** Launches that started early are not run. */
void forget_early();

/** cp.async operations of one thread, oldest first. */
struct AsyncCopies {
  struct Copy {
    void* shared;
    const void* global;
    bool valid;
  };
  std::vector<Copy> copies;
  std::vector<size_t> group_ends;  // a committed group is copies up to here
  size_t done = 0, groups_done = 0;
  void clear() {
    copies.clear();
    group_ends.clear();
    done = groups_done = 0;
  }
};

/** Products of a warpgroup that one thread started, oldest first (see warpgroup.cpp). */
struct WarpgroupProducts {
  struct Started {
    WarpgroupProduct product;
    float before[32];  // D, unless a product before it that is under way writes it
    bool follows;
  };
  std::vector<Started> started;
  std::vector<size_t> group_ends;  // a committed group is products up to here
  size_t done = 0, groups_done = 0;
  bool fenced = false;
  void clear() {
    started.clear();
    group_ends.clear();
    done = groups_done = 0;
    fenced = false;
  }
};

enum class State : uint8_t { ready, in_collective, at_barrier, at_grid_barrier, at_previous, exited };

struct Block;
struct CudaThread {
  Thread view;  // what the kernel sees; emu::current points here
  Fiber fiber;
  Block* block;
  int index, warp;  // of the thread in its block, of its warp
  State state;
  // what it waits for, or did last
  const char* what;
  Site site;
  WarpOperation operation;
  unsigned mask;
  void* payload;
  int barrier, barrier_threads, value;
  Reduce reduce;
  AsyncCopies copies;
  WarpgroupProducts products;
  std::vector<uint32_t> unfenced;  // chunks of shared memory that it wrote and the asynchronous proxy may not see yet
  unsigned arrived = 0;            // barriers where it counts without waiting
};

/**
 * What TSan orders a barrier by. A thread acquires when it continues, by which time faster threads may stand at the
 * next barrier already: that one needs another tag, or the slow thread would seem to know what they did in between.
 */
struct Tags {
  char tags[4];
  unsigned generation = 0;  // barriers that have opened
  char* now() { return &tags[generation % 4]; }
};

/** One access of each lane, in the order in which the lane made it (see conflicts.cpp). */
struct SharedAccesses {
  Site site;
  unsigned counts[32];
  std::vector<uint32_t> offsets;  // [access][lane], NOT_ACCESSED where a lane made fewer
};

struct Warp {
  unsigned arrived = 0, exited = 0;  // lanes
  Tags tags;                         // of __syncwarp
  std::vector<SharedAccesses> accesses;
};

const int BARRIERS = 16;

struct Block {
  uint3 index;
  std::vector<CudaThread*> threads;
  Warp warps[32];
  int live;
  int waiting[BARRIERS];             // threads that are there, and those that have gone on
  int arrived[BARRIERS], arrived_of[BARRIERS];  // the latter, and how many threads they said are to meet
  std::vector<bool> unfenced;        // of each 16 bytes of shared memory; empty until something was copied
  Tags tags[BARRIERS];
  unsigned char* shared;
};

/** The running thread. */
CudaThread& running();

/** Notes that the running thread's copy has written 16 bytes of shared memory. */
void written_by_copy(const void* shared);

/** Counts the conflicts of the 16-byte accesses noted for the warp so far. */
void count_conflicts(Warp& warp);
/** Extra trips to shared memory that eight 16-byte accesses need beyond the first one. */
int extra_wavefronts(const uint32_t* offsets, int count);

// kernel_memory.cpp, compiled with the sanitizers as kernels are, so that copies count as the kernel's accesses
void kernel_copy16(void* to, const void* from, bool valid);
void kernel_poison16(void* to);

/** The shared memory of a launch's blocks; see shared_memory.cpp. */
class SharedMemory {
 public:
  /** Memory for `slots` blocks that exist at once; each ends at a guard page. */
  void prepare(size_t slots, unsigned bytes);
  /** Slot i, filled with NaN. */
  unsigned char* slot(size_t i);
  /** Empty, or that the block wrote behind the end. */
  std::string check(size_t i);

 private:
  unsigned char* region = nullptr;
  size_t region_bytes = 0, slot_bytes = 0, slots = 0;
  unsigned size = 0;  // of a block's shared memory
  size_t padded = 0;  // with what the alignment adds
};

}  // namespace emu
