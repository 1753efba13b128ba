// Version 6: products of a warpgroup, by warps that do nothing else.
//
// Idea: mma.sync has a warp bring each fragment of K and V to registers and wait for each product. wgmma
//   lets four warps start a 64 x 64 product whose operand the tensor cores read from shared memory
//   themselves, and go on. So the scores of the next tile and O += P V of this one run while the softmax
//   is computed (Shah et al., FlashAttention-3, arXiv 2407.08608), in two warpgroups of 64 rows each,
//   and a third does nothing but bring tiles ahead.
// Changed from version 4: wgmma for mma.sync and ldmatrix; Br = 128 over two warpgroups, which skip the
//   tiles that the mask hides from their own rows; a producer warpgroup, which tells by named barriers
//   that a buffer is full, and is told that one is free; cp.async stays, since it can swizzle as it
//   copies: a bulk copy can't, and tensor maps would have to be made by the host for every cache.
// Limits: sm_90a alone; one block of 384 threads a multiprocessor. D a multiple of 8 up to 64, the rest
// filled with zeros: at 128 the registers of 384 threads do not hold S, P and O. Gain: not yet measured.
#pragma once
#include "attention_v4.cuh"

#if defined(__CUDA_ARCH_FEAT_SM90_ALL) || !defined(__CUDACC__)
template <bool N_MAJOR>
__device__ __forceinline__ void wgmma(float (*d)[4], const unsigned (&a)[4], uint64_t b, bool add, __half) {
  wgmma_f16<N_MAJOR>(d, a, b, add);
}
template <bool N_MAJOR>
__device__ __forceinline__ void wgmma(float (*d)[4], const unsigned (&a)[4], uint64_t b, bool add,
                                      __nv_bfloat16) {
  wgmma_bf16<N_MAJOR>(d, a, b, add);
}

// Three buffers: a tile's is free when the next one is full, and one more is to be on its way meanwhile.
enum { BUFFERS = 3, FULL = 1, FREE = FULL + BUFFERS, EVERYBODY = 384 };  // barriers of each, and who meets there

// Grid (ceil(rows / 128), H, n), block 384, shared memory 1 KB for alignment and 6 tiles of 64 x 64 elements.
template <class E>
__device__ __forceinline__ void attention_v6(const Prefill<E>& prefill) {
  constexpr int Bc = 64, DMAX = 64, TILE = Bc * DMAX * 2;
  DYN_SMEM(unaligned);
  unsigned char* smem = unaligned + (0u - shared_address(unaligned) & 1023);  // buffers, each K and V
  const HeadSegment<E> a(prefill, prefill.segments[blockIdx.z], blockIdx.y);
  const int firstRow = (gridDim.x - 1 - blockIdx.x) * 128;  // the longest rows start first
  if (firstRow >= a.rows) return;
  const int tiles = (a.visible(min(firstRow + 128, a.rows) - 1) + Bc - 1) / Bc;

  if (threadIdx.x < 128) {  // brings tiles
    for (int tile = 0; tile < tiles; tile++) {
      const int key0 = tile * Bc;
      unsigned char* k = smem + tile % BUFFERS * (2 * TILE);
      if (tile >= BUFFERS) named_barrier(FREE + tile % BUFFERS, EVERYBODY);
      copy_tile<E, Bc, DMAX>(k, a.k(key0), a.keyCount - key0, prefill.D);
      copy_tile<E, Bc, DMAX>(k + TILE, a.v(key0), a.keyCount - key0, prefill.D);
      cp_async_commit();
      if (tile > 0) {
        cp_async_wait<1>();  // the tile before is there
        fence_for_async_reads();
        named_arrive(FULL + (tile - 1) % BUFFERS, EVERYBODY);
      }
    }
    cp_async_wait<0>();
    fence_for_async_reads();
    named_arrive(FULL + (tiles - 1) % BUFFERS, EVERYBODY);
    return;
  }

  const int groupRow = firstRow + (int)(threadIdx.x >> 7) * 64 - 64;
  const int seen = groupRow < a.rows ? a.visible(min(groupRow + 64, a.rows) - 1) : 0;
  const int mine = (seen + Bc - 1) / Bc;  // tiles that one of its rows sees
  const float scaleLog2 = prefill.scale * 1.4426950408889634f;  // exp(x) = exp2(x log2(e))
  QueryTile<E, DMAX, Bc> rows;
  rows.load(a, groupRow + (int)(threadIdx.x >> 5 & 3) * 16);
  float s[Bc / 8][4], shrink[2];
  unsigned p[Bc / 16][4];

  auto score = [&](int tile) {  // starts S = Q K^T
    const unsigned char* k = smem + tile % BUFFERS * (2 * TILE);
#pragma unroll
    for (int ks = 0; ks < DMAX / 16; ks++)
      wgmma<false>(s, rows.q[ks], warpgroup_operand(k + ks * 32), ks > 0, E{});
    warpgroup_commit();
  };
  auto add_values = [&](int tile) {  // starts O += P V
    const unsigned char* v = smem + tile % BUFFERS * (2 * TILE) + TILE;
#pragma unroll
    for (int ks = 0; ks < Bc / 16; ks++)
      wgmma<true>(rows.o, p[ks], warpgroup_operand(v + ks * 2048), true, E{});
    warpgroup_commit();
  };
  auto hold_all = [&]() {
    hold(s);
    hold(rows.o);
  };
  auto pack_weights = [&]() {
#pragma unroll
    for (int ks = 0; ks < Bc / 16; ks++)
#pragma unroll
      for (int e = 0; e < 4; e++) {
        const float* pair = &s[2 * ks + (e >> 1)][2 * (e & 1)];
        p[ks][e] = pack(pair[0], pair[1], E{});
      }
  };

  named_barrier(FULL, EVERYBODY);
  if (mine > 0) {
    hold_all();
    warpgroup_fence();
    score(0);
    warpgroup_wait<0>();
    hold_all();
    rows.mask(s, a, 0);
    rows.weigh(s, scaleLog2, shrink);  // O is 0
    pack_weights();
  }
  for (int tile = 0; tile + 1 < tiles; tile++) {
    named_barrier(FULL + (tile + 1) % BUFFERS, EVERYBODY);
    if (tile + 1 < mine) {
      hold_all();
      warpgroup_fence();
      score(tile + 1);
      add_values(tile);
      warpgroup_wait<1>();
      hold(s);
      rows.mask(s, a, (tile + 1) * Bc);
      rows.weigh(s, scaleLog2, shrink);
      warpgroup_wait<0>();
      hold_all();
      rows.rescale(shrink);
      pack_weights();
    } else if (tile + 1 == mine) {
      hold_all();
      warpgroup_fence();
      add_values(tile);
      warpgroup_wait<0>();
      hold_all();
    }
    if (tile + BUFFERS < tiles) named_arrive(FREE + tile % BUFFERS, EVERYBODY);
  }
  if (mine == 0) return;
  if (mine == tiles) {
    hold_all();
    warpgroup_fence();
    add_values(tiles - 1);
    warpgroup_wait<0>();
    hold_all();
  }
  rows.store(a, scaleLog2);
}

#define ATTENTION_V6(E, element)                                                                        \
  extern "C" __global__ void __launch_bounds__(384, 1) attention_v6_d64_##element(PREFILL_PARAMETERS(E)) { \
    attention_v6<E>(PREFILL(E));                                                                       \
  }                                                                                                    \
  EXPORT_KERNEL(attention_v6_d64_##element)

ATTENTION_V6(__half, f16)
ATTENTION_V6(__nv_bfloat16, bf16)
#endif
