package dev.loupe.ops.cpu;

import static org.junit.jupiter.api.Assertions.assertEquals;

import dev.loupe.Precision;
import dev.loupe.ops.Linear;
import dev.loupe.ops.Tensor;
import dev.loupe.ops.TensorArena;
import dev.loupe.weights.Activation;
import dev.loupe.weights.DType;
import dev.loupe.weights.StoredTensor;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.util.List;
import java.util.Random;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/** Products of the CPU backend: the same bits for a row alone and among others. */
class ProductTest {
  private final Random random = new Random(5);

  private Tensor random(TensorArena arena, int rows, int cols) {
    Tensor x = arena.allocate(rows, cols);
    for (long i = 0; i < x.byteSize(); i += 4) {
      x.data().set(ScalarLoops.F32, i, (float) random.nextGaussian());
    }
    return x;
  }

  @ParameterizedTest
  @EnumSource
  void aRowsProductIsItsOwn(Precision precision) {
    int in = 200;
    int out = 300;
    try (Arena shared = Arena.ofShared();
        CpuOps ops = new CpuOps(2, precision, 0);
        TensorArena arena = ops.arena()) {
      MemorySegment values = shared.allocate(4L * in * out, 4);
      for (long i = 0; i < values.byteSize(); i += 4) {
        values.set(ScalarLoops.F32, i, (float) random.nextGaussian());
      }
      StoredTensor stored =
          new StoredTensor("w", DType.F32, List.of((long) in, (long) out), values);
      Linear w = new Linear(arena.weight(stored), random(arena, 1, out));
      Tensor x = random(arena, 23, in);
      Tensor all = arena.allocate(23, out);
      Tensor one = arena.allocate(1, out);
      ops.linear(x, w, Activation.GELU_NEW, all);
      for (int r = 0; r < 23; r++) {
        ops.linear(x.rows(r, 1), w, Activation.GELU_NEW, one);
        assertEquals(-1, one.data().mismatch(all.rows(r, 1).data()), "row " + r);
      }
      Tensor sum = random(arena, 23, out);
      for (int r = 0; r < 23; r++) {
        ops.copy(sum.rows(r, 1), one);
        ops.linearResidual(x.rows(r, 1), w, one);
        Tensor row = sum.rows(r, 1);
        ops.linearResidual(x.rows(r, 1), w, row);
        assertEquals(-1, one.data().mismatch(row.data()), "row " + r);
      }
    }
  }
}
