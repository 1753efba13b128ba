#include "scheduler.h"

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <memory>

#include "fault.h"
#include "report.h"

namespace emu {

Thread* current;
Options options;
Statistics statistics;

namespace {

/** The launch in progress. */
struct Scheduler {
  Fiber host;
  std::vector<std::unique_ptr<CudaThread>> pool;  // fibers are kept from launch to launch
  std::vector<std::unique_ptr<Block>> blocks;     // those that exist now: one, or all of a cooperative launch
  std::vector<CudaThread*> ready;                 // ring in forward mode, any order else
  size_t first = 0;
  CudaThread* running = nullptr;
  const Launch* launch = nullptr;
  uint64_t random = 1;
  size_t in_grid_barrier = 0;
  unsigned long idle_spins = 0;  // spins since a thread did anything else
  std::string error;
  char launch_tag, end_tag, fence_tag;  // TSan's
  Tags grid_tags;
  SharedMemory shared;
  std::vector<size_t> order;  // of the grid's blocks
  size_t started = 0;         // of them
  bool ahead = false;         // threads stop where they wait for the launch before
  bool has_waited = false;    // a thread has waited for it
};
/** A launch that started early, and the one before it. */
Scheduler schedulers[2];
Scheduler* s = &schedulers[0];
const size_t EARLY_BLOCKS = 4;

uint64_t next_random() {
  s->random ^= s->random << 13;
  s->random ^= s->random >> 7;
  s->random ^= s->random << 17;
  return s->random >> 11;
}

void make_ready(CudaThread* t) {
  t->state = State::ready;
  s->ready.push_back(t);
}

bool nothing_ready() { return s->first == s->ready.size(); }

/** Forward: who waits longest. Reverse: who came last, so one thread runs as far ahead as it can. */
CudaThread* take_ready() {
  size_t i = s->first;
  if (options.schedule == Schedule::forward) {
    CudaThread* t = s->ready[s->first++];
    if (s->first > 4096 && s->first * 2 > s->ready.size()) {
      s->ready.erase(s->ready.begin(), s->ready.begin() + s->first);
      s->first = 0;
    }
    return t;
  }
  i = options.schedule == Schedule::reverse ? s->ready.size() - 1 : s->first + next_random() % (s->ready.size() - s->first);
  std::swap(s->ready[i], s->ready.back());
  CudaThread* t = s->ready.back();
  s->ready.pop_back();
  return t;
}

void switch_to(CudaThread* to, bool ends) {
  CudaThread* from = s->running;
  if (from == to) return;
  s->running = to;
  current = to ? &to->view : nullptr;
  statistics.switches++;
  fiber_switch(from ? from->fiber : s->host, to ? to->fiber : s->host, ends);
}

/** Lets another thread run; the caller has noted what it waits for. */
void leave(bool ends = false) {
  if (!nothing_ready()) {
    switch_to(take_ready(), ends);
    return;
  }
  if (s->ahead) return switch_to(nullptr, ends);  // those who wait for others go on with these
  for (auto& block : s->blocks) {
    if (block->live > 0) fail("deadlock: no thread can continue");
  }
  switch_to(nullptr, ends);
}

void wait_at(CudaThread& t, State state, const char* what, Site site) {
  t.state = state;
  t.what = what;
  t.site = site;
  s->idle_spins = 0;
}

/** Opens the barriers of a block for which all expected threads have come. */
void open_barriers(Block& block) {
  for (int id = 0; id < BARRIERS; id++) {
    if (block.waiting[id] == 0) continue;
    std::vector<CudaThread*> there;
    for (CudaThread* t : block.threads) {
      if (t->state == State::at_barrier && t->barrier == id) there.push_back(t);
    }
    if (there.empty()) continue;  // all have gone on
    CudaThread* first = there[0];
    // threads that have left the kernel no longer count, as on a GPU
    int expected = first->barrier_threads ? first->barrier_threads : block.live;
    if (block.waiting[id] < expected) continue;
    if (block.waiting[id] > expected || (block.arrived[id] && block.arrived_of[id] != expected)) {
      fail("%s at %s:%d: %d threads meet at barrier %d, where %d and %d are said to", first->what, first->site.file,
           first->site.line, block.waiting[id], id, expected, block.arrived_of[id]);
    }
    if (block.arrived[id]) {
      block.arrived[id] = 0;
      for (CudaThread* t : block.threads) t->arrived &= ~(1u << id);
    }
    int count = 0;
    for (CudaThread* t : there) {
      if (!(t->site == first->site) || t->barrier_threads != first->barrier_threads || t->reduce != first->reduce) {
        fail("divergent barrier: threads of one block meet in %s at %s:%d and %s at %s:%d", first->what,
             first->site.file, first->site.line, t->what, t->site.file, t->site.line);
      }
      count += t->value != 0;
    }
    block.waiting[id] = 0;
    block.tags[id].generation++;
    for (CudaThread* t : there) {
      t->value = t->reduce == Reduce::count ? count : t->reduce == Reduce::any ? count > 0 : count == expected;
      make_ready(t);
    }
    for (Warp& warp : block.warps) count_conflicts(warp);
  }
}

void thread_main() {
  fiber_entered(s->running->fiber);
  tsan_acquire(&s->launch_tag);
  s->launch->call(s->launch->parameters);
  tsan_release(&s->end_tag);
  CudaThread& t = *s->running;
  RuntimeScope scope(t.fiber);
  if (t.products.groups_done < t.products.group_ends.size()) {
    fail("the kernel ends while products of a warpgroup are under way");
  }
  t.state = State::exited;
  s->idle_spins = 0;
  t.block->live--;
  Warp& warp = t.block->warps[t.warp];
  warp.exited |= 1u << t.view.lane;
  size_t first = t.warp * 32, end = std::min(first + 32, t.block->threads.size());
  for (size_t i = first; i < end; i++) {
    CudaThread* other = t.block->threads[i];
    if (other->state == State::in_collective && other->mask >> t.view.lane & 1) {
      fail("%s at %s:%d waits for lane %u, which has exited or does not exist", other->what, other->site.file,
           other->site.line, t.view.lane);
    }
  }
  open_barriers(*t.block);  // those who wait may have waited for this thread only
  leave(true);
  abort();  // an exited thread is never continued
}

std::string place(const Thread& t) {
  char text[200];
  snprintf(text, sizeof text, "kernel %s, block (%u,%u,%u), thread (%u,%u,%u)", s->launch->kernel.c_str(),
           t.block_index.x, t.block_index.y, t.block_index.z, t.thread_index.x, t.thread_index.y, t.thread_index.z);
  return text;
}

uint3 index_in(dim3 size, size_t i) {
  return {static_cast<unsigned>(i % size.x), static_cast<unsigned>(i / size.x % size.y),
          static_cast<unsigned>(i / (static_cast<size_t>(size.x) * size.y))};
}

/** Sets up block i of the grid on fibers first_fiber..; its threads are ready afterwards. */
void start_block(Block& block, size_t i, size_t slot, size_t first_fiber) {
  const Launch& l = *s->launch;
  int n = l.block.x * l.block.y * l.block.z;
  block.index = index_in(l.grid, i);
  block.threads.resize(n);
  block.live = n;
  std::fill(block.waiting, block.waiting + BARRIERS, 0);
  std::fill(block.arrived, block.arrived + BARRIERS, 0);
  block.unfenced.clear();
  for (Warp& warp : block.warps) {
    warp.arrived = warp.exited = 0;
    count_conflicts(warp);
  }
  block.shared = s->shared.slot(slot);
  for (int k = 0; k < n; k++) {
    // Another thread of each block on each fiber: TSan takes a fiber for a thread, and what one fiber does in one
    // block would be ordered before what it does in the next, hiding races between blocks.
    CudaThread* t = s->pool[first_fiber + (k + i) % n].get();
    t->view = {index_in(l.block, k), block.index, l.block, l.grid, k % 32u, block.shared, l.shared_bytes};
    t->block = &block;
    t->index = k;
    t->warp = k / 32;
    t->what = "start";
    t->site = {"kernel start", 0};
    t->copies.clear();
    t->products.clear();
    t->unfenced.clear();
    t->arrived = 0;
    fiber_prepare(t->fiber, thread_main);
    block.threads[k] = t;
    make_ready(t);
  }
}

#ifdef EMU_TSAN
/** Runs on the fibers of a failed launch, so that TSan knows that the host comes after all they did. */
void dropped_main() {
  fiber_entered(s->running->fiber);
  tsan_release(&s->end_tag);
  switch_to(nullptr, true);
}

void drop_threads() {
  for (auto& block : s->blocks) {
    for (CudaThread* t : block->threads) {
      if (t->state == State::exited) continue;
      fiber_prepare(t->fiber, dropped_main);
      switch_to(t, false);
      fiber_renew(t->fiber);
    }
  }
}
#endif

void run_ready() {
  tsan_release(&s->launch_tag);
  switch_to(take_ready(), false);
#ifdef EMU_TSAN
  if (!s->error.empty()) drop_threads();
#endif
  for (auto& block : s->blocks) {
    for (Warp& warp : block->warps) count_conflicts(warp);
  }
}

void grow_pool(size_t fibers) {
  while (s->pool.size() < fibers) {
    s->pool.push_back(std::make_unique<CudaThread>());
    fiber_create(s->pool.back()->fiber);
  }
}

std::vector<size_t> block_order(size_t count) {
  std::vector<size_t> order(count);
  for (size_t i = 0; i < count; i++) order[i] = options.schedule == Schedule::reverse ? count - 1 - i : i;
  if (options.schedule == Schedule::random) {
    for (size_t i = count; i > 1; i--) std::swap(order[i - 1], order[next_random() % i]);
  }
  return order;
}

size_t blocks_of(const Launch& l) { return static_cast<size_t>(l.grid.x) * l.grid.y * l.grid.z; }

/** Where the shared memory of the block lies that is the i-th to start, and the k-th of those that exist. */
size_t slot_of([[maybe_unused]] size_t i, [[maybe_unused]] size_t k) {
#ifdef EMU_TSAN
  return i;  // memory used again by the next block would look like a race with it
#else
  return k;
#endif
}

/** Starts so many of the blocks that have not begun, and runs them until none of their threads can go on. */
void run_some(const Launch& l, size_t at_once) {
  size_t threads = static_cast<size_t>(l.block.x) * l.block.y * l.block.z;
  grow_pool(at_once * threads);
  while (s->blocks.size() < at_once) s->blocks.push_back(std::make_unique<Block>());
  s->blocks.resize(at_once);
  s->ready.clear();
  s->first = 0;
  for (size_t k = 0; k < at_once; k++) {
    start_block(*s->blocks[k], s->order[s->started + k], slot_of(s->started + k, k), k * threads);
  }
  s->started += at_once;
  statistics.blocks += at_once;
  run_ready();
}

void check_shared() {
  size_t n = s->blocks.size();
  for (size_t k = 0; k < n && s->error.empty(); k++) s->error = s->shared.check(slot_of(s->started - n + k, k));
}

void begin(const Launch& launch) {
  statistics.launches++;
  s->launch = &launch;
  s->random = (options.seed + 1) * 0x9E3779B97F4A7C15ull | 1;
  s->error.clear();
  s->running = nullptr;
  s->in_grid_barrier = 0;
  s->idle_spins = 0;
  s->started = 0;
  s->has_waited = false;
  s->ahead = false;
  size_t blocks = blocks_of(launch);
  s->order = block_order(blocks);
  size_t at_once = launch.cooperative ? blocks : std::min(blocks, launch.early ? EARLY_BLOCKS : 1);
  s->shared.prepare(slot_of(blocks - 1, at_once - 1) + 1, launch.shared_bytes);
  fiber_adopt(s->host);
}

/** Goes on with the blocks that started early. */
void go_on() {
  s->ahead = false;
  fiber_adopt(s->host);  // a launch may go on from another thread of the host
  for (auto& block : s->blocks) {
    for (CudaThread* t : block->threads) {
      if (t->state == State::at_previous) make_ready(t);
    }
  }
  bool done = true;
  for (auto& block : s->blocks) done = done && block->live == 0;
  if (!nothing_ready()) {
    run_ready();
  } else if (!done) {
    s->error = "deadlock: threads wait for others of a block that started early, and none can continue";
  }
  check_shared();
}

}  // namespace

CudaThread& running() { return *s->running; }

void start_early(const Launch& launch) {
  if (launch.cooperative || !launch.waits) return;
  s = schedulers[0].ahead ? &schedulers[1] : &schedulers[0];
  begin(launch);
  s->ahead = true;
  faults_catch();
  run_some(launch, std::min(EARLY_BLOCKS, blocks_of(launch)));
  faults_restore();
}

void forget_early() {
  for (Scheduler& each : schedulers) each.ahead = false;
}

std::string run(const Launch& launch) {
  Scheduler* ahead = nullptr;
  for (Scheduler& each : schedulers) {
    if (each.ahead && each.launch == &launch) ahead = &each;
  }
  // the launch after this one may be ahead on the other
  s = ahead ? ahead : schedulers[0].ahead ? &schedulers[1] : &schedulers[0];
  if (!ahead) begin(launch);
  faults_catch();
  if (ahead && s->error.empty()) go_on();
  s->ahead = false;
  size_t blocks = blocks_of(launch);
  while (s->started < blocks && s->error.empty()) {
    run_some(launch, launch.cooperative ? blocks : 1);
    check_shared();
  }
  faults_restore();
  tsan_acquire(&s->end_tag);
  if (launch.early && !s->has_waited && s->error.empty()) {
    s->error = "it started early, and no thread waits for the launch before";
  }
  s->launch = nullptr;
  return s->error.empty() ? "" : "kernel " + launch.kernel + ": " + s->error;
}

void fail(const char* format, ...) {
  char text[1024];
  if (s->running) static_cast<void>(new RuntimeScope(s->running->fiber));  // never closed: this thread is dropped
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  if (!s->running) {
    fprintf(stderr, "emulator: %s\n", text);
    abort();
  }
  s->error = std::string(text) + " [" + place(s->running->view) + "]" + describe_threads(*s->running->block);
  switch_to(nullptr, true);  // the other threads stay where they are; their stacks are used again
  abort();
}

int block_barrier(int id, int threads, Reduce reduce, int value, const char* what, Site site) {
  CudaThread& t = *s->running;
  RuntimeScope scope(t.fiber);
  wait_at(t, State::at_barrier, what, site);
  if (id < 0 || id >= BARRIERS) fail("%s at %s:%d: barrier %d does not exist", what, site.file, site.line, id);
  if (threads % 32 != 0 || threads < 0) {
    fail("%s at %s:%d: %d threads, must be a multiple of 32", what, site.file, site.line, threads);
  }
  t.barrier = id;
  t.barrier_threads = threads;
  t.reduce = reduce;
  t.value = value;
  Block& block = *t.block;
  char* tag = block.tags[id].now();
  tsan_release(tag);
  block.waiting[id]++;
  if (block.waiting[id] >= (threads ? threads : block.live)) open_barriers(block);
  leave();
  tsan_acquire(tag);
  return t.value;
}

void block_arrive(int id, int threads, Site site) {
  CudaThread& t = *s->running;
  RuntimeScope scope(t.fiber);
  t.what = "named_arrive";
  t.site = site;
  Block& block = *t.block;
  if (id < 1 || id >= BARRIERS || threads % 32 != 0 || threads <= 0) {
    fail("named_arrive at %s:%d: barrier %d of %d threads", site.file, site.line, id, threads);
  }
  if (t.arrived >> id & 1) {
    fail("named_arrive at %s:%d: a second time at barrier %d, which has not opened since", site.file, site.line, id);
  }
  t.arrived |= 1u << id;
  tsan_release(block.tags[id].now());
  block.arrived[id]++;
  block.arrived_of[id] = threads;
  if (++block.waiting[id] >= threads) open_barriers(block);
}

void warp_collective(WarpOperation operation, const char* what, unsigned mask, void* payload, bool orders_memory,
                     Site site) {
  CudaThread& t = *s->running;
  RuntimeScope scope(t.fiber);
  Warp& warp = t.block->warps[t.warp];
  wait_at(t, State::in_collective, what, site);
  t.operation = operation;
  t.mask = mask;
  t.payload = payload;
  statistics.collectives++;
  int first = t.warp * 32, size = static_cast<int>(t.block->threads.size());
  if (!(mask >> t.view.lane & 1)) {
    fail("%s at %s:%d: lane %u calls but is not in mask %08x", what, site.file, site.line, t.view.lane, mask);
  }
  unsigned missing = mask & (warp.exited | (first + 32 > size ? ~0u << (size - first) : 0));
  if (missing) {
    fail("%s at %s:%d waits for lane %d of mask %08x, which has exited or does not exist", what, site.file, site.line,
         __builtin_ctz(missing), mask);
  }
  char* tag = warp.tags.now();
  if (orders_memory) tsan_release(tag);
  warp.arrived |= 1u << t.view.lane;
  if ((warp.arrived & mask) == mask) {
    void* lanes[32] = {};
    for (int lane = 0; lane < 32; lane++) {
      if (!(mask >> lane & 1)) continue;
      CudaThread* other = t.block->threads[first + lane];
      if (other->operation != operation || other->mask != mask || !(other->site == site)) {
        fail("divergent warp: %s (mask %08x) at %s:%d meets %s (mask %08x) at %s:%d", what, mask, site.file, site.line,
             other->what, other->mask, other->site.file, other->site.line);
      }
      lanes[lane] = other->payload;
    }
    operation(lanes, mask);
    if (mask == ~0u) count_conflicts(warp);
    if (orders_memory) warp.tags.generation++;
    warp.arrived &= ~mask;
    for (int lane = 0; lane < 32; lane++) {
      if (mask >> lane & 1) make_ready(t.block->threads[first + lane]);
    }
  }
  leave();
  if (orders_memory) tsan_acquire(tag);
}

void grid_barrier(Site site) {
  CudaThread& t = *s->running;
  RuntimeScope scope(t.fiber);
  wait_at(t, State::at_grid_barrier, "grid_sync", site);
  if (!s->launch->cooperative) fail("grid_sync at %s:%d: not a cooperative launch", site.file, site.line);
  char* tag = s->grid_tags.now();
  tsan_release(tag);
  size_t all = 0;
  for (auto& block : s->blocks) all += block->threads.size();
  if (++s->in_grid_barrier == all) {
    s->in_grid_barrier = 0;
    s->grid_tags.generation++;
    for (auto& block : s->blocks) {
      for (CudaThread* other : block->threads) {
        if (!(other->site == site)) {
          fail("divergent grid barrier: %s:%d and %s:%d", site.file, site.line, other->site.file, other->site.line);
        }
        make_ready(other);
      }
    }
  }
  leave();
  tsan_acquire(tag);
}

void previous_wait(Site site) {
  CudaThread& t = *s->running;
  RuntimeScope scope(t.fiber);
  if (!s->launch->waits) return;
  s->has_waited = true;
  s->idle_spins = 0;
  if (!s->ahead) return;
  wait_at(t, State::at_previous, "wait_for_previous", site);
  leave();
}

void fence() {
  tsan_release(&s->fence_tag);
  tsan_acquire(&s->fence_tag);
}

void spin(Site site) {
  CudaThread& t = *s->running;
  RuntimeScope scope(t.fiber);
  t.what = "spinning";
  t.site = site;
  size_t all = 0;
  for (auto& block : s->blocks) all += block->live;
  if (++s->idle_spins > 1000 * all) {
    fail("at %s:%d: threads spin for ever: what they wait for does not come", site.file, site.line);
  }
  // at the end of the queue in every mode: a spinning thread that is always taken next would stop the others
  t.state = State::ready;
  s->ready.insert(s->ready.begin() + s->first, &t);
  if (options.schedule == Schedule::forward) std::rotate(s->ready.begin() + s->first, s->ready.begin() + s->first + 1, s->ready.end());
  leave();
}

void operation_none(void* const*, unsigned) {}

void operation_shuffle(void* const* lanes, unsigned mask) {
  for (int lane = 0; lane < 32; lane++) {
    if (!(mask >> lane & 1)) continue;
    Shuffle& to = *static_cast<Shuffle*>(lanes[lane]);
    bool taking_part = mask >> (to.source & 31) & 1;
    // CUDA leaves the value of a lane outside of the mask undefined: here it is NaN in every type
    to.result = taking_part ? static_cast<Shuffle*>(lanes[to.source & 31])->value : ~0ull;
  }
}

void operation_ballot(void* const* lanes, unsigned mask) {
  unsigned result = 0;
  for (int lane = 0; lane < 32; lane++) {
    if (mask >> lane & 1) result |= static_cast<unsigned>(static_cast<Vote*>(lanes[lane])->predicate) << lane;
  }
  for (int lane = 0; lane < 32; lane++) {
    if (mask >> lane & 1) static_cast<Vote*>(lanes[lane])->result = result;
  }
}

}  // namespace emu
