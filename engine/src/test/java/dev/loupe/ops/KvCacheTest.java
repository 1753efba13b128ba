package dev.loupe.ops;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotSame;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;

import dev.loupe.ops.cpu.CpuOps;
import org.junit.jupiter.api.Test;

/** What a cache and the passes over it refuse. */
class KvCacheTest {
  @Test
  void cacheRefusesGapsAndOverflow() {
    try (CpuOps ops = new CpuOps(1);
        TensorArena arena = ops.arena()) {
      KvCache kv = new KvCache(arena, 1, 1, 4, 1, 64);
      assertThrows(
          IllegalArgumentException.class, () -> kv.extend(Batch.sequence(0, 1, 0)), "a gap");
      kv.extend(Batch.sequence(0, 0, new int[64]));
      assertThrows(
          IllegalArgumentException.class, () -> kv.extend(Batch.sequence(0, 64, 0)), "overflow");
      kv.truncate(0, 3);
      kv.extend(Batch.sequence(0, 3, 0));
      assertEquals(4, kv.length(0));
      assertThrows(
          IllegalArgumentException.class, () -> kv.extend(Batch.sequence(0, 4, new int[61])));
      assertEquals(4, kv.length(0), "a refused batch leaves the cache as it was");
    }
  }

  @Test
  void onePassAtATime() {
    try (CpuOps ops = new CpuOps(1);
        TensorArena arena = ops.arena()) {
      KvCache kv = new KvCache(arena, 1, 1, 4, 1, 64);
      Tensor x = arena.allocate(1, 4);
      Tensor table = arena.allocate(2, 4);
      Pass first = ops.begin(Batch.sequence(0, 0, 1), kv, Mask.CAUSAL);
      first.embed(table, table, x);
      assertThrows(
          IllegalStateException.class, () -> ops.begin(Batch.sequence(0, 1, 1), kv, Mask.CAUSAL));
      assertEquals(1, kv.length(0));
      first.close();
      assertThrows(IllegalStateException.class, () -> first.embed(table, table, x));
      Batch batch = Batch.sequence(0, 1, 1);
      Pass second = ops.begin(batch, kv, Mask.CAUSAL);
      first.close(); // once more, which ends nothing
      second.embed(table, table, x);
      Tensor qkv = arena.allocate(1, 12);
      Tensor lse = arena.allocate(1, 1);
      Attention attention = second.attention(0, 1, qkv, lse);
      second.close();
      batch.set(0, 1, 2);
      try (Pass again = ops.begin(batch, kv, Mask.CAUSAL)) {
        assertSame(attention, again.attention(0, 1, qkv, lse), "a step makes no new objects");
        assertNotSame(attention, again.attention(0, 0.5f, qkv, lse));
        batch.add(1, 3, 0, false);
        assertThrows(IllegalArgumentException.class, () -> again.attention(0, 0.5f, qkv, lse));
      }
      try (Pass full = ops.begin(Batch.sequence(0, 3, 1), kv, Mask.FULL)) {
        assertNotSame(second, full);
      }
    }
  }

  @Test
  void aPassOfTheirOwnSharesMemoryAmongLayers() {
    try (CpuOps ops = new CpuOps(1);
        TensorArena arena = ops.arena()) {
      Tensor keys = arena.allocate(192, 12);
      Tensor values = arena.allocate(192, 12);
      KvCache kv = KvCache.ofOnePass(keys, values, 5, 3, 3, 64);
      assertEquals(3, kv.sequences());
      assertEquals(64, kv.capacity());
      assertEquals(4, kv.headDim());
      assertEquals(9, kv.keys(4).rows());
      assertEquals(64 * 4, kv.keys(4).cols());
      assertEquals(keys.data().address(), kv.keys(4).data().address());
      assertEquals(values.data().address(), kv.values(0).data().address());
      assertThrows(
          IllegalArgumentException.class, () -> kv.extend(Batch.sequence(2, 0, new int[65])));
      assertEquals(128, KvCache.ofOnePass(keys, values, 1, 3, 1, 65).capacity());
      assertThrows(
          IllegalArgumentException.class, () -> KvCache.ofOnePass(keys, values, 1, 3, 2, 65));
      assertThrows(
          IllegalArgumentException.class, () -> KvCache.ofOnePass(keys, values, 1, 3, 4, 1));
      assertThrows(
          IllegalArgumentException.class,
          () -> KvCache.ofOnePass(keys, values.rows(0, 191), 1, 3, 3, 64));
      assertThrows(
          IllegalArgumentException.class,
          () -> KvCache.ofOnePass(keys.rows(0, 191), values, 1, 3, 3, 64));
    }
  }
}
