package dev.loupe.ops.cuda;

import dev.loupe.cuda.DeviceBuffer;
import dev.loupe.cuda.driver.Element;
import dev.loupe.cuda.kernels.GemvKernels;
import dev.loupe.cuda.kernels.KernelActivation;
import dev.loupe.cuda.kernels.LinearEpilogue;
import dev.loupe.cuda.kernels.LinearMap;
import dev.loupe.ops.Attention;
import dev.loupe.ops.AttentionPlan;
import dev.loupe.ops.AttentionPlan.Kind;
import dev.loupe.ops.Batch;
import dev.loupe.ops.KvCache;
import dev.loupe.ops.LayerNorm;
import dev.loupe.ops.Linear;
import dev.loupe.ops.Mask;
import dev.loupe.ops.Normed;
import dev.loupe.ops.Pass;
import dev.loupe.ops.RebuiltRows;
import dev.loupe.ops.Tensor;
import dev.loupe.ops.Weight;
import dev.loupe.weights.config.Activation;
import org.jspecify.annotations.Nullable;

/** A pass on the GPU: its operations are put on the GPU's stream, and none of them waits. */
final class CudaPass extends Pass {
  private final CudaOps ops;
  private final CudaSession session;
  private final boolean resident; // the device keeps the rows itself
  private CudaSession.@Nullable Rows rows;

  /** A pass whose rows the host describes. */
  CudaPass(CudaOps ops, Batch batch, KvCache kv, Mask mask) {
    super(batch, kv, mask);
    this.ops = ops;
    session = ops.tensors().session(kv.keys(0));
    resident = false;
  }

  /** A decoding step, whose rows are on the device already. */
  CudaPass(CudaOps ops, CudaSession session, Batch batch, KvCache kv, CudaSession.Rows rows) {
    super(batch, kv, Mask.CAUSAL);
    this.ops = ops;
    this.session = session;
    this.rows = rows;
    resident = true;
  }

  /** The rows on the device. */
  private CudaSession.Rows rows() {
    CudaSession.Rows r = rows;
    if (r == null) { // rows of an earlier pass, whose attention is looked at
      r = session.describe(batch(), batch().rows());
      rows = r;
    }
    return r;
  }

  @Override
  public void embed(Tensor wte, Tensor wpe, Tensor x) {
    requireOpen();
    CudaOps.same("rows", batch().rows(), x.rows());
    ops.gpu()
        .run(
            () -> {
              if (rows == null) {
                long most = ops.tensors().block(x).buffer().elements() / x.cols();
                rows = session.describe(batch(), Math.toIntExact(most));
              }
              ops.kernels()
                  .embedding()
                  .embed(
                      rows().ids(),
                      rows().positions(),
                      ops.buffer(wte),
                      ops.buffer(wpe),
                      ops.buffer(x),
                      x.rows(),
                      wte.rows(),
                      wpe.rows(),
                      x.cols());
            });
  }

  @Override
  public void layerNorm(Tensor x, LayerNorm norm, Tensor out) {
    requireOpen();
    CudaOps.same("rows", out.rows(), x.rows());
    ops.gpu()
        .run(
            () ->
                ops.kernels()
                    .layerNorm()
                    .normalize(
                        ops.buffer(x),
                        ops.buffer(norm.weight()),
                        ops.buffer(norm.bias()),
                        ops.buffer(out),
                        x.rows(),
                        x.cols(),
                        norm.epsilon()));
  }

  /** What becomes of a product. */
  private interface Epilogue {
    /**
     * @param out the rows that the product is written to
     * @param first which row of the pass the first of them is
     */
    LinearEpilogue of(Tensor out, int first);
  }

  private Epilogue output(KernelActivation f) {
    return (out, _) -> new LinearEpilogue.Output(ops.buffer(out), f);
  }

  @Override
  public void linear(Tensor x, Linear w, Activation f, Tensor out) {
    multiply(x, null, w.weight(), w.bias(), output(CudaLimits.kernel(f)), out);
  }

  @Override
  public void linear(Normed x, Linear w, Activation f, Tensor out) {
    multiply(x, w.weight(), w.bias(), output(CudaLimits.kernel(f)), out);
  }

  @Override
  public void linearResidual(Tensor x, Linear w, Tensor acc) {
    Epilogue add = (out, _) -> new LinearEpilogue.Residual(ops.buffer(out));
    multiply(x, null, w.weight(), w.bias(), add, acc);
  }

  @Override
  public void logits(Tensor x, Weight head, Tensor out) {
    multiply(x, null, head, null, output(KernelActivation.NONE), out);
  }

  @Override
  public void logits(Normed x, Weight head, Tensor out) {
    multiply(x, head, null, output(KernelActivation.NONE), out);
  }

  /** By one kernel where it can normalise the rows itself, which must be f32. */
  private void multiply(
      Normed x, Weight weight, @Nullable Tensor bias, Epilogue epilogue, Tensor out) {
    boolean atOnce =
        ops.buffer(x.room()).element() == Element.F32
            && ops.kernels().matmul().takesNorm(map(weight), atOnce(x.x().rows()));
    if (atOnce) {
      multiply(x.x(), x.norm(), weight, bias, epilogue, out);
    } else {
      multiply(apart(x), null, weight, bias, epilogue, out);
    }
  }

  private static LinearMap map(Weight weight) {
    return ((CudaMatmul.CudaWeight) weight).map();
  }

  /**
   * How many of {@code rows} are multiplied at once: all of a prompt, and in a decoding step so few
   * that each has the bits that it has alone.
   */
  private int atOnce(int rows) {
    return resident ? Math.min(rows, GemvKernels.MAX_ROWS) : rows;
  }

  private void multiply(
      Tensor x,
      @Nullable LayerNorm norm,
      Weight weight,
      @Nullable Tensor bias,
      Epilogue epilogue,
      Tensor out) {
    requireOpen();
    CudaOps.same("rows", out.rows(), x.rows());
    int most = atOnce(x.rows());
    for (int first = 0; first < x.rows(); first += most) {
      int count = Math.min(most, x.rows() - first);
      Tensor part = count == x.rows() ? out : out.rows(first, count);
      multiply(
          count == x.rows() ? x : x.rows(first, count),
          norm,
          weight,
          bias,
          epilogue.of(part, first),
          part);
    }
  }

  private void multiply(
      Tensor x,
      @Nullable LayerNorm norm,
      Weight weight,
      @Nullable Tensor bias,
      LinearEpilogue epilogue,
      Tensor out) {
    LinearMap w = map(weight);
    ops.gpu()
        .run(
            () -> {
              LinearMap map =
                  new LinearMap(
                      w.weight(),
                      w.scales(),
                      bias == null ? null : ops.buffer(bias),
                      w.in(),
                      w.outputs());
              ops.kernels()
                  .matmul()
                  .multiply(
                      map,
                      ops.buffer(x),
                      norm == null
                          ? null
                          : new GemvKernels.InputNorm(
                              ops.buffer(norm.weight()), ops.buffer(norm.bias()), norm.epsilon()),
                      epilogue,
                      session,
                      resident,
                      out.data().address(),
                      x.rows());
            });
  }

  @Override
  public Attention attention(int layer, float scale, Tensor qkv, Tensor lse) {
    requireOpen();
    return new OfLayer(layer, scale, qkv, lse);
  }

  private final class OfLayer extends Attention {
    OfLayer(int layer, float scale, Tensor qkv, Tensor lse) {
      super(CudaPass.this, layer, scale, qkv, lse);
    }

    @Override
    public void project(Tensor x, Linear w) {
      multiply(x, null, w.weight(), w.bias(), append(), qkv());
    }

    @Override
    public void project(Normed x, Linear w) {
      multiply(x, w.weight(), w.bias(), append(), qkv());
    }

    private Epilogue append() {
      requireOpen();
      session.hold();
      return (out, first) ->
          new LinearEpilogue.QkvAppend(
              ops.buffer(out),
              ops.buffer(kv().keys(layer())),
              ops.buffer(kv().values(layer())),
              from(rows().sequences(), first),
              from(rows().positions(), first),
              CudaSession.shape(kv()));
    }

    private static DeviceBuffer from(DeviceBuffer list, int first) {
      return first == 0 ? list : list.slice(first, list.elements() - first);
    }

    @Override
    public void attend(Tensor y) {
      requireOpen();
      CudaOps.same("rows", y.rows(), batch().rows());
      ops.gpu().run(() -> session.attend(this, rows(), ops.buffer(y)));
    }

    @Override
    public RebuiltRows probabilities(int[] heads, int firstRow, int rows, Tensor out) {
      requireMap(heads, firstRow, rows, out);
      return rebuild(Kind.PROBABILITIES, heads, firstRow, rows, out);
    }

    @Override
    public RebuiltRows scores(int[] heads, int firstRow, int rows, Tensor out) {
      requireMap(heads, firstRow, rows, out);
      return rebuild(Kind.SCORES, heads, firstRow, rows, out);
    }

    @Override
    public RebuiltRows statistics(int[] heads, int firstRow, int rows, int top, Tensor out) {
      requireRows(heads, firstRow, rows, out);
      CudaOps.same("columns", AttentionPlan.statisticsOf(top), out.cols());
      return rebuild(Kind.STATISTICS, heads, firstRow, rows, out);
    }

    private RebuiltRows rebuild(Kind kind, int[] heads, int first, int count, Tensor out) {
      CudaMaps.RowLayout layout =
          new CudaMaps.RowLayout(kind, out.dtype(), heads.length * count, out.cols());
      DeviceBuffer to = ops.buffer(out);
      ops.gpu().run(() -> session.maps().rebuild(this, rows(), heads, first, count, layout, to));
      return session.maps().bring(layout, to);
    }
  }
}
