package dev.loupe.ops.cpu;

import dev.loupe.ops.LayerNorm;
import dev.loupe.ops.Tensor;

/** Layer norm: the work of one row. */
final class NormTask implements WorkerPool.Body {
  private final Scratch[] scratch;
  Tensor x = CpuOps.NONE;
  LayerNorm norm = new LayerNorm(CpuOps.NONE, CpuOps.NONE, 0);
  Tensor out = CpuOps.NONE;

  /**
   * @param scratch of each worker
   */
  NormTask(Scratch[] scratch) {
    this.scratch = scratch;
  }

  @Override
  public void run(int row, int worker) {
    InnerLoops loops = scratch[worker].loops;
    int width = x.cols();
    long offset = x.offset(row, 0);
    float mean = loops.sum(x.data(), offset, width) / width;
    float variance = loops.sumOfSquares(x.data(), offset, width, mean) / width;
    float factor = (float) (1 / Math.sqrt(variance + (double) norm.epsilon()));
    loops.normalise(
        x.data(),
        offset,
        width,
        mean,
        factor,
        norm.weight().data(),
        norm.bias().data(),
        out.data(),
        out.offset(row, 0));
  }
}
