package dev.loupe.cuda.kernels;

import static dev.loupe.cuda.driver.Parameter.FLOAT;
import static dev.loupe.cuda.driver.Parameter.INT;
import static dev.loupe.cuda.driver.Parameter.POINTER;

import dev.loupe.cuda.BufferCheck;
import dev.loupe.cuda.DeviceBuffer;
import dev.loupe.cuda.Gpu;
import dev.loupe.cuda.Launch;
import dev.loupe.cuda.driver.Element;
import dev.loupe.cuda.driver.GpuException;
import dev.loupe.cuda.driver.Parameter;
import dev.loupe.cuda.driver.Variant;
import java.util.List;
import java.util.Set;
import org.jspecify.annotations.Nullable;

/**
 * From logits to the next token: softmax, argmax, and the whole of sampling, the draw being that of
 * the CPU: Gumbel-max with noise by Philox4x32-10 of seed, sample, position and token id.
 *
 * <p>Bit sets lie in I32 buffers, 32 ids a word, id i in bit i % 32 of word i / 32.
 *
 * <p>Not for two threads at once.
 */
public final class SampleKernels {
  /** Value in {@link Chosen#errors}: a logit was NaN or infinite. */
  public static final int NOT_FINITE = 1;

  /** Value in {@link Chosen#errors}: no id was allowed. */
  public static final int NO_ID = 2;

  private static final Set<Element> ELEMENTS = Set.of(Element.F32);

  static final List<Variant> VARIANTS =
      List.of(
          new Variant(
              "sample",
              "v1",
              "one block a row, radix histograms, scores in shared memory as far as they fit",
              "V up to 2^22",
              ELEMENTS,
              75),
          new Variant("sample", "argmax", "one block a row", "", ELEMENTS, 75),
          new Variant("sample", "softmax", "one block a row", "", ELEMENTS, 75),
          new Variant("sample", "logprob", "one block a row", "", ELEMENTS, 75));

  private static final List<Variant> SAMPLE = VARIANTS.subList(0, 1);
  private static final List<Variant> LOGPROB = VARIANTS.subList(3, 4);
  private static final int MAX_VOCABULARY = 1 << 22;
  private static final int SHARED_BYTES = 25248; // sizeof(Shared) in sample.cu

  private final Gpu gpu;
  private final int threads;
  private final int mostKept;
  private final Launch sample;
  private final Launch argmax;
  private final Launch softmax;
  private final Launch logprob;

  /**
   * Rows of logits.
   *
   * @param values [rows, stride] F32
   * @param rows how many
   * @param vocabulary V, the logits of a row
   * @param stride elements from one row to the next, V or more; a multiple of 4 is faster
   */
  public record Logits(DeviceBuffer values, int rows, int vocabulary, int stride) {
    /** Rows that follow on each other. */
    public Logits(DeviceBuffer values, int rows, int vocabulary) {
      this(values, rows, vocabulary, vocabulary);
    }

    private void check(BufferCheck check, int most) {
      check.size("vocabulary", vocabulary, 1, most);
      check.size("stride", stride, vocabulary, Integer.MAX_VALUE);
      check.size("rows", rows, 1, Integer.MAX_VALUE);
      check.holds("logits", values, Element.F32, (rows - 1L) * stride + vocabulary);
    }

    private int words() {
      return Math.ceilDiv(vocabulary, 32);
    }

    /** Threads of a row's block, if nobody says: four ids or more each. */
    private int threads(int said) {
      return said != 0 ? said : Math.clamp(Integer.highestOneBit(vocabulary / 4 + 1), 64, 1024);
    }
  }

  /**
   * What sampling says of each row.
   *
   * @param ids [rows] I32: the token; -1 after an error
   * @param logprobs [rows] F32: natural log of its probability by the softmax of the logits as they
   *     came; NaN after an error
   * @param ranks [rows] I32: how many logits are larger than its own; -1 after an error
   * @param errors [rows] I32: 0, {@link #NOT_FINITE} or {@link #NO_ID}
   */
  public record Chosen(
      DeviceBuffer ids, DeviceBuffer logprobs, DeviceBuffer ranks, DeviceBuffer errors) {}

  /** True if {@link #sample} computes rightly on this card; nothing plainer does the same. */
  public static boolean canSample(Gpu gpu) {
    return gpu.find(SAMPLE, Element.F32, 1).isPresent();
  }

  /** Likewise {@link #logprobs}. */
  public static boolean canTellLogprobs(Gpu gpu, int rows) {
    return gpu.find(LOGPROB, Element.F32, rows).isPresent();
  }

  /**
   * Loads the kernels.
   *
   * @throws GpuException if there are none for this card and driver
   */
  public SampleKernels(Gpu gpu) {
    this(gpu, 0, Integer.MAX_VALUE);
  }

  /**
   * Likewise, to see what the size of a block is worth.
   *
   * @param threads of each block, a power of two of 64 to 1024; 0 for those that suit the rows
   * @param mostKept scores that stay in shared memory, where it has room for them
   */
  public SampleKernels(Gpu gpu, int threads, int mostKept) {
    this.gpu = gpu;
    this.threads = threads;
    this.mostKept = mostKept;
    sample =
        new Launch(gpu.kernel("sample", "sample_v1_f32"), Parameter.pointers(10, INT, INT, INT))
            .waits();
    argmax = new Launch(gpu.kernel("sample", "sample_argmax_f32"), Parameter.pointers(4, INT, INT));
    softmax =
        new Launch(
            gpu.kernel("sample", "sample_softmax_f32"), POINTER, POINTER, INT, INT, FLOAT, INT);
    logprob =
        new Launch(gpu.kernel("sample", "sample_logprob_f32"), POINTER, POINTER, POINTER, INT, INT);
  }

  /**
   * Chooses a token for each row.
   *
   * @param allowed bit set [V] of the ids that may be chosen; null: all
   * @param seen bit sets [rows, V] of the ids that the repetition penalty applies to, to which the
   *     chosen id is added; null: none
   * @param samples [rows] I32: number of the row's sample among those of one prompt
   * @param positions [rows] I32: place of the chosen token in its run
   * @param options [rows, {@link SampleOptions#INTS}] I32: {@link SampleOptions#words} of each row;
   *     the kernel reads them when it runs, so a recorded launch takes those that lie there then
   * @throws IllegalArgumentException if a buffer is too small, closed, or of another element
   */
  public void sample(
      Logits logits,
      @Nullable DeviceBuffer allowed,
      @Nullable DeviceBuffer seen,
      DeviceBuffer samples,
      DeviceBuffer positions,
      DeviceBuffer options,
      Chosen chosen) {
    BufferCheck check = new BufferCheck("sample", gpu);
    logits.check(check, MAX_VOCABULARY);
    int rows = logits.rows();
    check.holds("samples", samples, Element.I32, rows);
    check.holds("positions", positions, Element.I32, rows);
    check.holds("options", options, Element.I32, (long) rows * SampleOptions.INTS);
    check.holds("ids", chosen.ids(), Element.I32, rows);
    check.holds("logprobs", chosen.logprobs(), Element.F32, rows);
    check.holds("ranks", chosen.ranks(), Element.I32, rows);
    check.holds("errors", chosen.errors(), Element.I32, rows);
    setOptional(check, sample, 1, "allowed", allowed, logits.words());
    setOptional(check, sample, 2, "seen", seen, (long) rows * logits.words());
    int room = Math.min(mostKept, (gpu.maxSharedBytes() - SHARED_BYTES) / Float.BYTES);
    int keeps = Math.min(Math.ceilDiv(logits.vocabulary(), 4), room / 4) * 4; // scores
    sample
        .set(0, logits.values())
        .set(3, samples)
        .set(4, positions)
        .set(5, chosen.ids())
        .set(6, chosen.logprobs())
        .set(7, chosen.ranks())
        .set(8, chosen.errors())
        .set(9, options)
        .set(10, logits.vocabulary())
        .set(11, logits.stride())
        .set(12, keeps)
        .run(rows, 1, 1, logits.threads(threads), 1, SHARED_BYTES + keeps * Float.BYTES);
  }

  /**
   * The id of the largest logit of each row, the lowest among equals.
   *
   * @param allowed bit set [V] of the ids that may be chosen; null: all
   * @param ids [rows] I32; -1 after an error
   * @param errors [rows] I32 as in {@link Chosen}
   * @throws IllegalArgumentException if a buffer is too small, closed, or of another element
   */
  public void argmax(
      Logits logits, @Nullable DeviceBuffer allowed, DeviceBuffer ids, DeviceBuffer errors) {
    BufferCheck check = new BufferCheck("argmax", gpu);
    logits.check(check, Integer.MAX_VALUE - 4096);
    check.holds("ids", ids, Element.I32, logits.rows());
    check.holds("errors", errors, Element.I32, logits.rows());
    setOptional(check, argmax, 1, "allowed", allowed, logits.words());
    argmax
        .set(0, logits.values())
        .set(2, ids)
        .set(3, errors)
        .set(4, logits.vocabulary())
        .set(5, logits.stride())
        .run(logits.rows(), 1, 1, logits.threads(threads), 1, SHARED_BYTES);
  }

  /**
   * y = softmax(logits / temperature) of each row, or its natural log.
   *
   * @param y [rows, stride] F32; may be the logits
   * @param temperature more than 0
   * @param log whether to write log probabilities
   * @throws IllegalArgumentException if a buffer is too small, closed, or of another element
   */
  public void softmax(Logits logits, DeviceBuffer y, float temperature, boolean log) {
    BufferCheck check = new BufferCheck("softmax", gpu);
    logits.check(check, Integer.MAX_VALUE - 4096);
    check.holds("y", y, Element.F32, (logits.rows() - 1L) * logits.stride() + logits.vocabulary());
    if (!(temperature > 0 && temperature < Float.POSITIVE_INFINITY)) {
      throw new IllegalArgumentException(
          "softmax: temperature is %s, not more than 0".formatted(temperature));
    }
    int n = logits.threads(threads);
    softmax
        .set(0, logits.values())
        .set(1, y)
        .set(2, logits.vocabulary())
        .set(3, logits.stride())
        .set(4, temperature)
        .set(5, log ? 1 : 0)
        .run(logits.rows(), 1, 1, n, 1, n / 32 * Float.BYTES);
  }

  /**
   * The natural log of the probability of one id of each row by the softmax of its logits.
   *
   * @param ids [rows] I32, all less than V; negative: none
   * @param logprobs [rows] F32; NaN where there is no id, and where a logit is NaN or +infinity
   * @throws IllegalArgumentException if a buffer is too small, closed, or of another element
   */
  public void logprobs(Logits logits, DeviceBuffer ids, DeviceBuffer logprobs) {
    BufferCheck check = new BufferCheck("logprobs", gpu);
    logits.check(check, Integer.MAX_VALUE - 4096);
    check.holds("ids", ids, Element.I32, logits.rows());
    check.holds("logprobs", logprobs, Element.F32, logits.rows());
    int n = logits.threads(threads);
    logprob
        .set(0, logits.values())
        .set(1, ids)
        .set(2, logprobs)
        .set(3, logits.vocabulary())
        .set(4, logits.stride())
        .run(logits.rows(), 1, 1, n, 1, n / 32 * Float.BYTES);
  }

  private static void setOptional(
      BufferCheck check,
      Launch launch,
      int i,
      String name,
      @Nullable DeviceBuffer set,
      long words) {
    if (set == null) {
      launch.setNull(i);
    } else {
      check.holds(name, set, Element.I32, words);
      launch.set(i, set);
    }
  }
}
