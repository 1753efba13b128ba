// wgmma.mma_async: products of a warpgroup that end later than they begin, with operands in shared memory that the
// asynchronous proxy reads. A real one reads A, B and D and writes D at any time between its start and the wait for it.
// Eager mode does so at the start, lazy mode at the wait, with NaN in D until then: what reads D too early sees NaN, what
// writes A, B or D too early changes the result. B that was copied and not fenced since is refused.
#include "emu_ptx.h"
#include "scheduler.h"
#include "tensor_core.h"

namespace emu {

static const unsigned WINDOW = 1024 + 128;  // where shared memory begins: not where operands may, so that kernels align

unsigned shared_window(const void* p, Site site) {
  check_shared(p, 1, 1, "shared_address", site);
  return static_cast<unsigned>(static_cast<const unsigned char*>(p) - running().view.shared) + WINDOW;
}

void written_by_copy(const void* shared) {
  CudaThread& t = running();
  RuntimeScope scope(t.fiber);
  Block& block = *t.block;
  if (block.unfenced.empty()) block.unfenced.resize(t.view.shared_bytes / 16 + 1);
  uint32_t chunk = static_cast<uint32_t>((static_cast<const unsigned char*>(shared) - t.view.shared) / 16);
  if (block.unfenced[chunk]) return;
  block.unfenced[chunk] = true;
  t.unfenced.push_back(chunk);
}

void fence_for_async_reads() {
  CudaThread& t = running();
  RuntimeScope scope(t.fiber);
  for (uint32_t chunk : t.unfenced) t.block->unfenced[chunk] = false;
  t.unfenced.clear();
}

namespace {

/** 16 bytes of B at an address in the window, swizzled. */
struct Chunk {
  uint16_t element[8];
};

Chunk read_chunk(unsigned address, const WarpgroupProduct& p) {
  address ^= (address >> 7 & 7) << 4;
  const Thread& t = running().view;
  const unsigned char* at = t.shared + (address - WINDOW);
  check_shared(at, 16, 16, "wgmma", p.site);
  const std::vector<bool>& unfenced = running().block->unfenced;
  if (!unfenced.empty() && unfenced[(address - WINDOW) / 16]) {
    fail("wgmma at %s:%d: its operand in shared memory, at offset %u, was copied there and not fenced since", p.site.file,
         p.site.line, address - WINDOW);
  }
  Chunk chunk;
#ifdef EMU_TSAN
  kernel_copy16(&chunk, at, true);  // an access that TSan sees
#else
  memcpy(&chunk, at, sizeof chunk);  // none that is counted: no warp makes it
#endif
  return chunk;
}

float value(unsigned bits, bool bf16) { return bf16 ? bf16_value(bits) : f16_value(bits); }

/** B [16][64] where the descriptor says that it lies. */
void read_operand(const WarpgroupProduct& p, float (&b)[16][64]) {
  unsigned start = static_cast<unsigned>(p.b & 0x3fff) << 4, stride = static_cast<unsigned>(p.b >> 32 & 0x3fff) << 4;
  if (p.b >> 62 != 1 || p.b >> 49 & 7) {
    fail("wgmma at %s:%d: only operands swizzled by 128 bytes, from a multiple of 1024 on, are known here", p.site.file,
         p.site.line);
  }
  for (unsigned line = 0; line < (p.n_major ? 16 : 64); line++) {
    for (unsigned c = 0; c < (p.n_major ? 8 : 2); c++) {
      Chunk chunk = read_chunk(start + line / 8 * stride + line % 8 * 128 + c * 16, p);
      for (unsigned i = 0; i < 8; i++) {
        float x = value(chunk.element[i], p.bf16);
        if (p.n_major) b[line][c * 8 + i] = x;
        else b[c * 8 + i][line] = x;
      }
    }
  }
}

/** The i-th product of all lanes of a warp. */
void finish(CudaThread* const* lanes, size_t i) {
  const WarpgroupProduct& p = lanes[0]->products.started[i].product;
  float b[16][64];
  read_operand(p, b);
  for (int n = 0; n < 64; n += 8) {
    Product<16> product;
    for (int k = 0; k < 16; k++) memcpy(product.B[k], &b[k][n], sizeof product.B[k]);
    Mma mma[32];
    void* of[32];
    for (int lane = 0; lane < 32; lane++) {
      WarpgroupProducts::Started& each = lanes[lane]->products.started[i];
      float* d = each.product.d + n / 2;
      if (!each.product.add) {
        memset(d, 0, 4 * sizeof *d);
      } else if (!each.follows) {
        memcpy(d, each.before + n / 2, 4 * sizeof *d);
      }
      mma[lane] = {d, each.product.a, {}};
      of[lane] = &mma[lane];
    }
    fragments_of_a(of, p.bf16, product);
    product.run(of);
  }
}

struct Wait {
  CudaThread* thread;
  int pending;  // groups that may stay under way; -1: all products end, committed or not
};

void operation_finish(void* const* lanes, unsigned) {
  CudaThread* threads[32];
  for (int lane = 0; lane < 32; lane++) threads[lane] = static_cast<Wait*>(lanes[lane])->thread;
  int pending = static_cast<Wait*>(lanes[0])->pending;
  WarpgroupProducts& first = threads[0]->products;
  for (CudaThread* t : threads) {
    const WarpgroupProducts& each = t->products;
    bool same = each.started.size() == first.started.size() && each.group_ends == first.group_ends;
    for (size_t i = first.done; same && i < first.started.size(); i++) {
      const WarpgroupProduct &p = each.started[i].product, &q = first.started[i].product;
      same = p.b == q.b && p.n_major == q.n_major && p.add == q.add && p.bf16 == q.bf16 && p.site == q.site;
    }
    if (!same) fail("wgmma: lanes of a warp have not started the same products");
  }
  size_t end = first.started.size(), groups = first.group_ends.size();
  if (pending >= 0) {
    groups = groups > static_cast<size_t>(pending) ? groups - pending : 0;
    end = groups > 0 ? first.group_ends[groups - 1] : 0;
  }
  size_t from = first.done;
  for (size_t i = from; i < end; i++) finish(threads, i);
  for (CudaThread* t : threads) {
    t->products.done = std::max(from, end);
    if (pending >= 0) t->products.groups_done = std::max(t->products.groups_done, groups);
  }
}

void finish_products(int pending, const char* what, Site site) {
  CudaThread& t = running();
  Wait wait{&t, pending};
  warp_collective(operation_finish, what, 0xffffffffu, &wait, false, site);
}

}  // namespace

void warpgroup_product(const WarpgroupProduct& product) {
  CudaThread& t = running();
  t.site = product.site;
  Site site = product.site;
  WarpgroupProducts& all = t.products;
  if (t.block->threads.size() % 128) fail("wgmma at %s:%d: the block is no multiple of 128 threads", site.file, site.line);
  if (!all.fenced) {
    fail("wgmma at %s:%d: registers may have changed since the last warpgroup_fence", site.file, site.line);
  }
  WarpgroupProducts::Started started{product, {}, false};
  for (size_t i = all.done; i < all.started.size(); i++) started.follows |= all.started[i].product.d == product.d;
  if (!started.follows) {
    memcpy(started.before, product.d, sizeof started.before);
    memset(product.d, 0xff, sizeof started.before);  // NaN
  }
  {
    RuntimeScope scope(t.fiber);
    all.started.push_back(started);
  }
  if (options.eager_copies) finish_products(-1, "wgmma", site);
}

void warpgroup_fence(Site site) {
  CudaThread& t = running();
  t.site = site;
  t.products.fenced = true;
}

void warpgroup_commit(Site site) {
  CudaThread& t = running();
  RuntimeScope scope(t.fiber);
  t.site = site;
  t.products.group_ends.push_back(t.products.started.size());
}

void warpgroup_wait(int pending, Site site) {
  finish_products(pending, "warpgroup_wait", site);
  CudaThread& t = running();
  RuntimeScope scope(t.fiber);
  WarpgroupProducts& all = t.products;
  all.fenced = false;
  if (all.done == all.started.size() && all.groups_done == all.group_ends.size()) all.clear();
}

}  // namespace emu
