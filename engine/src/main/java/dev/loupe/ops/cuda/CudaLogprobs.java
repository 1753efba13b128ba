package dev.loupe.ops.cuda;

import dev.loupe.cuda.DeviceBuffer;
import dev.loupe.cuda.DeviceScratch;
import dev.loupe.cuda.driver.Element;
import dev.loupe.cuda.kernels.SampleKernels;
import dev.loupe.ops.Ops;
import dev.loupe.ops.Tensor;
import dev.loupe.sampling.TokenDistribution;
import java.util.Arrays;
import java.util.BitSet;
import java.util.List;
import org.jspecify.annotations.Nullable;

/** Log-probabilities of given tokens, computed on the device from rows of logits. */
final class CudaLogprobs {
  private final CudaOps ops;
  private final DeviceScratch tokensOfRows;
  private final DeviceScratch logprobsOfRows;
  private final DeviceScratch infinitiesOfGaps;
  private int infinitiesUploaded;
  private @Nullable SampleKernels kernels; // loaded when first asked

  CudaLogprobs(CudaOps ops) {
    this.ops = ops;
    tokensOfRows = new DeviceScratch(ops.gpu(), Element.I32);
    logprobsOfRows = new DeviceScratch(ops.gpu(), Element.F32);
    infinitiesOfGaps = new DeviceScratch(ops.gpu(), Element.F32);
  }

  /**
   * As {@link Ops#logprobs} has it, with ids that were checked; on the host where no kernel
   * computes them rightly on this card.
   *
   * @param x logits [R, V]
   * @param ids R tokens
   * @param out R numbers
   */
  void of(Tensor x, int[] ids, BitSet sayable, double[] out) {
    if (ids.length == 0) {
      return;
    }
    if (!SampleKernels.canTellLogprobs(ops.gpu(), ids.length)) {
      float[] row = new float[x.cols()];
      for (int r = 0; r < ids.length; r++) {
        ops.read(x, r, row, row.length);
        out[r] = ids[r] < 0 ? Double.NaN : new TokenDistribution(row, sayable).logprob(ids[r]);
      }
      return;
    }
    float[] found = new float[ids.length];
    ops.gpu().run(() -> onDevice(x, ids, sayable, found));
    for (int r = 0; r < ids.length; r++) {
      out[r] = found[r];
    }
  }

  private void onDevice(Tensor x, int[] ids, BitSet sayable, float[] found) {
    fillGaps(x, sayable);
    DeviceBuffer tokens = tokensOfRows.atLeast(ids.length);
    DeviceBuffer logprobs = logprobsOfRows.atLeast(ids.length);
    tokens.upload(ids);
    kernels()
        .logprobs(new SampleKernels.Logits(ops.buffer(x), x.rows(), x.cols()), tokens, logprobs);
    logprobs.download(found);
  }

  private SampleKernels kernels() {
    SampleKernels loaded = kernels;
    if (loaded == null) {
      loaded = new SampleKernels(ops.gpu());
      kernels = loaded;
    }
    return loaded;
  }

  /** Sets the logits of rows that only pad the vocabulary to -infinity. */
  private void fillGaps(Tensor x, BitSet sayable) {
    List<int[]> gaps = Ops.gaps(sayable, x.cols());
    int widest = gaps.stream().mapToInt(gap -> gap[1] - gap[0]).max().orElse(0);
    if (widest == 0) {
      return;
    }
    DeviceBuffer infinities = infinitiesOfGaps.atLeast(widest);
    if (widest > infinitiesUploaded) {
      float[] values = new float[widest];
      Arrays.fill(values, Float.NEGATIVE_INFINITY);
      infinities.slice(0, widest).upload(values);
      infinitiesUploaded = widest;
    }
    for (int r = 0; r < x.rows(); r++) {
      for (int[] gap : gaps) {
        ops.buffer(x)
            .slice((long) r * x.cols() + gap[0], gap[1] - gap[0])
            .copyFrom(infinities, gap[1] - gap[0]);
      }
    }
  }
}
