package dev.loupe.ops.cpu;

import static org.junit.jupiter.api.Assertions.assertEquals;

import dev.loupe.ops.Linear;
import dev.loupe.ops.Precision;
import dev.loupe.ops.Tensor;
import dev.loupe.ops.TensorArena;
import dev.loupe.weights.config.Activation;
import dev.loupe.weights.tensor.DType;
import dev.loupe.weights.tensor.StoredTensor;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.util.ArrayList;
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

  /**
   * Those of 7 rows and of 8 go different ways; 32 outputs are less than a task of several panels.
   */
  @ParameterizedTest
  @EnumSource
  void aRowsProductIsItsOwn(Precision precision) {
    for (InnerLoops loops : loops()) {
      for (int out : new int[] {1, 32, 300}) {
        try (CpuOps ops = new CpuOps(2, precision, loops)) {
          rowsAreTheirOwn(ops, 200, out);
        }
      }
    }
  }

  private static List<InnerLoops> loops() {
    List<InnerLoops> all = new ArrayList<>(LoopsFixture.vectors());
    all.add(new ScalarLoops());
    return all;
  }

  private void rowsAreTheirOwn(CpuOps ops, int in, int out) {
    int most = 2 * CpuOps.FEW + 5;
    try (Arena shared = Arena.ofShared();
        TensorArena arena = ops.arena()) {
      MemorySegment values = shared.allocate(4L * in * out, 4);
      for (long i = 0; i < values.byteSize(); i += 4) {
        values.set(ScalarLoops.F32, i, (float) random.nextGaussian());
      }
      StoredTensor stored =
          new StoredTensor("w", DType.F32, List.of((long) in, (long) out), values);
      Linear w = new Linear(arena.weight(stored), random(arena, 1, out));
      Tensor x = random(arena, most, in);
      x.data()
          .setAtIndex(ScalarLoops.F32, 2L * in + 70, 1e6f); // too large for tricks with exponents
      Tensor before = random(arena, most, out);
      Tensor alone = arena.allocate(most, out);
      Tensor added = arena.allocate(most, out);
      ops.copy(before, added);
      for (int r = 0; r < most; r++) {
        ops.multiply(
            x.rows(r, 1), w.weight(), w.bias(), Activation.GELU_NEW, false, alone.rows(r, 1));
        ops.multiply(x.rows(r, 1), w.weight(), w.bias(), null, true, added.rows(r, 1));
      }
      Tensor some = arena.allocate(most, out);
      for (int rows : new int[] {2, 3, 4, CpuOps.FEW, CpuOps.FEW + 1, most}) {
        String what = "%s, %d outputs, %d rows".formatted(ops.device(), out, rows);
        Tensor together = some.rows(0, rows);
        ops.multiply(x.rows(0, rows), w.weight(), w.bias(), Activation.GELU_NEW, false, together);
        assertEquals(-1, alone.rows(0, rows).data().mismatch(together.data()), what);
        ops.copy(before.rows(0, rows), together);
        ops.multiply(x.rows(0, rows), w.weight(), w.bias(), null, true, together);
        assertEquals(-1, added.rows(0, rows).data().mismatch(together.data()), what);
      }
    }
  }
}
