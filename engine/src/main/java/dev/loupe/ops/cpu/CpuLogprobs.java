package dev.loupe.ops.cpu;

import dev.loupe.ops.Ops;
import dev.loupe.ops.Tensor;
import java.lang.foreign.MemorySegment;
import java.util.BitSet;

/** Log-probabilities of tokens on the CPU. */
final class CpuLogprobs {
  /** {@link Ops#logprobs}. */
  static void of(CpuOps ops, Tensor x, int[] ids, BitSet sayable, double[] out) {
    for (int id : ids) {
      if (id >= x.cols()) {
        throw new IllegalArgumentException("token %d of %d".formatted(id, x.cols()));
      }
    }
    for (int[] gap : Ops.gaps(sayable, x.cols())) {
      for (int r = 0; r < ids.length; r++) {
        for (int v = gap[0]; v < gap[1]; v++) {
          x.data().set(ScalarLoops.F32, x.offset(r, v), Float.NEGATIVE_INFINITY);
        }
      }
    }
    ops.run(ids.length, (r, s) -> out[r] = ids[r] < 0 ? Double.NaN : logprob(x, r, ids[r], s));
  }

  private static double logprob(Tensor x, int row, int id, Scratch s) {
    float max = Float.NEGATIVE_INFINITY;
    for (int first = 0; first < x.cols(); first += InnerLoops.KEYS) {
      max = nextLogits(x, row, first, max, s);
    }
    double sum = 0;
    s.denominators.fill((byte) 0); // a NaN of another row would outlast the factor
    for (int first = 0; first < x.cols(); first += InnerLoops.KEYS) {
      float _ = nextLogits(x, row, first, max, s);
      s.loops.exponentials(s.scores, 0, max, 0, s.denominators, 0);
      sum += s.sum(s.denominators, 0);
    }
    return x.data().get(ScalarLoops.F32, x.offset(row, id)) - (max + Math.log(sum));
  }

  /** Brings some logits to the scratch's scores; the largest of them and {@code max}. */
  private static float nextLogits(Tensor x, int row, int first, float max, Scratch s) {
    int n = Math.min(InnerLoops.KEYS, x.cols() - first);
    MemorySegment.copy(x.data(), x.offset(row, first), s.scores, 0, 4L * n);
    return s.loops.scaleScores(s.scores, 0, n, 1, max);
  }

  private CpuLogprobs() {}
}
