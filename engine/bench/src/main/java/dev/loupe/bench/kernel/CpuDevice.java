package dev.loupe.bench.kernel;

import com.sun.management.OperatingSystemMXBean;
import dev.loupe.bench.Ceilings;
import dev.loupe.bench.Machine;
import dev.loupe.ops.Precision;
import java.lang.management.ManagementFactory;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/**
 * The CPU. Each ladder starts with a textbook's loops in one thread; then comes the product's own
 * code, on plain loops, on vectors, and at last on all threads, as the model runs it. Activations
 * are f32 always; LINEAR alone has narrower weights.
 *
 * <p>Vectors of one width alone: where a process has seen several, the JDK's own code is compiled
 * for all of them, and in one run of three a width then takes half as long again.
 */
public final class CpuDevice implements Device {
  private final int threads;
  private final int vectorBits; // 0: there are no vectors
  private final ColdCaches caches;
  private final Map<Key, CpuBackend> backends = new HashMap<>();
  private final long memory;
  private long taken; // of it, by runs

  /**
   * What a candidate computes with.
   *
   * @param bits of a vector; 0 for plain loops
   */
  record Key(int threads, int bits, Precision precision) {}

  /**
   * This machine's.
   *
   * @param threads of the best candidates; at least 1
   * @param vectorBits of the vectors: 128, 256 or 512; 0 for what Java prefers on this processor
   */
  public CpuDevice(int threads, int vectorBits) {
    if (threads < 1) {
      throw new IllegalArgumentException("%d threads; at least 1 is needed".formatted(threads));
    }
    if (vectorBits != 0 && vectorBits != 128 && vectorBits != 256 && vectorBits != 512) {
      throw new IllegalArgumentException(
          "vectors of %d bits: there are 128, 256 and 512".formatted(vectorBits));
    }
    this.threads = threads;
    int preferred = Machine.here().vectorBits();
    int bits = vectorBits == 0 ? Math.clamp(preferred, 128, 512) : vectorBits;
    this.vectorBits = preferred == 0 ? 0 : bits;
    caches = new ColdCaches(threads);
    // the rest is for the heap, with the inputs as Java has them, and for everybody else
    memory =
        ManagementFactory.getPlatformMXBean(OperatingSystemMXBean.class).getTotalMemorySize() / 2;
  }

  @Override
  public String backend() {
    return "cpu";
  }

  @Override
  public String name() {
    return open(new Key(threads, vectorBits, Precision.F32)).name();
  }

  @Override
  public boolean emulated() {
    return false;
  }

  @Override
  public List<Candidate> candidates(Operation operation, Precision precision) {
    if (precision != Precision.F32 && operation != Operation.LINEAR) {
      return List.of();
    }
    List<Candidate> ladder = new ArrayList<>();
    if (precision == Precision.F32) {
      addTextbook(operation, ladder);
    }
    add(ladder, first(operation), idea(operation), new Key(1, 0, precision));
    if (vectorBits > 0) {
      int numbers = vectorBits / Float.SIZE;
      String idea =
          "the same in vectors of %d bits, %d numbers each".formatted(vectorBits, numbers);
      add(ladder, "vector", idea, new Key(1, vectorBits, precision));
    }
    if (threads > 1) {
      String idea = "the same on %d threads, that share %s".formatted(threads, shares(operation));
      Key all = new Key(threads, vectorBits, precision);
      add(ladder, "threads", idea, all);
    }
    return ladder;
  }

  private void add(List<Candidate> ladder, String name, String idea, Key backend) {
    ladder.add(new CpuCandidate(name, idea, backend.precision, this, backend, null));
  }

  private void addTextbook(Operation operation, List<Candidate> ladder) {
    switch (operation) {
      case ATTENTION -> {
        textbook(
            ladder,
            "naive",
            "all scores of a head, their softmax, weighted sums of values",
            TextbookAttention::naive);
        textbook(
            ladder,
            "online",
            "one pass, the softmax as it goes: no matrix of scores",
            TextbookAttention::online);
      }
      case DECODE_ATTENTION -> {
        textbook(
            ladder,
            "naive",
            "all scores of the row, their softmax, a weighted sum of values",
            TextbookAttention::naive);
        textbook(
            ladder,
            "online",
            "one pass, the softmax as it goes: no row of scores",
            TextbookAttention::online);
      }
      case MAP ->
          textbook(
              ladder,
              "naive",
              "scores of a row, then their softmax: three passes",
              TextbookAttention::map);
      case LINEAR -> {
        textbook(
            ladder,
            "naive",
            "one output after the other, each down a column of the weight",
            TextbookLinear::naive);
        textbook(
            ladder,
            "rows",
            "all outputs of a row at once: the weight is read as it lies",
            TextbookLinear::rows);
      }
      case LAYERNORM ->
          textbook(
              ladder,
              "naive",
              "mean, variance, then the result: three passes in double",
              TextbookRows::layerNorm);
      case SOFTMAX ->
          textbook(
              ladder,
              "naive",
              "largest, sum, then the result: three passes, Math.exp",
              TextbookRows::softmax);
      case GELU ->
          textbook(
              ladder, "naive", "the formula as it stands, Math.tanh in double", TextbookRows::gelu);
    }
  }

  private void textbook(
      List<Candidate> ladder, String name, String idea, CpuCandidate.Textbook textbook) {
    Key backend = new Key(1, 0, Precision.F32); // for its memory alone
    ladder.add(new CpuCandidate(name, idea, Precision.F32, this, backend, textbook));
  }

  /** The name of the product's code on plain loops. */
  private static String first(Operation operation) {
    return switch (operation) {
      case ATTENTION, DECODE_ATTENTION, MAP, LINEAR -> "tiled";
      case LAYERNORM, SOFTMAX, GELU -> "plain";
    };
  }

  private static String idea(Operation operation) {
    return switch (operation) {
      case ATTENTION ->
          "tiles of 16 rows and 64 keys, in steps of 16 for vectors, but still in plain loops";
      case DECODE_ATTENTION ->
          "64 keys at a time, 16 side by side for vectors, but still in plain loops";
      case MAP -> "one pass: with log-sum-exp known, each tile is done at once";
      case LINEAR -> "16 outputs side by side in a panel for vectors, but still in plain loops";
      case LAYERNORM -> "in f32, with 16 sums that need not wait for each other";
      case SOFTMAX -> "an exponential of its own in f32, 16 sums at once";
      case GELU -> "an exponential of its own in f32: tanh as a logistic function";
    };
  }

  /** What threads share. */
  private static String shares(Operation operation) {
    return switch (operation) {
      case ATTENTION -> "heads and blocks of 16 rows";
      case DECODE_ATTENTION -> "heads";
      case MAP -> "heads and a few rows of each";
      case LINEAR -> "panels of outputs";
      case LAYERNORM, SOFTMAX -> "rows";
      case GELU -> "pieces of 1,024";
    };
  }

  @Override
  public List<Shape> usualShapes(Operation operation) {
    return switch (operation) {
      case ATTENTION, DECODE_ATTENTION ->
          Shape.parse(operation, "T=128..1024,H=12,D=64", List.of());
      case MAP -> Shape.parse(operation, "T=128..512,H=12,D=64", List.of());
      case LINEAR -> Shape.parse(operation, "M=1,64,512,K=768,N=3072", List.of());
      case LAYERNORM -> Shape.parse(operation, "R=1,64,512,C=768", List.of());
      case SOFTMAX -> Shape.parse(operation, "R=1,64,512,C=1024", List.of());
      case GELU -> Shape.parse(operation, "R=1,64,512,C=3072", List.of());
    };
  }

  /** Of as many threads as the best candidates have; NaN without the Vector API. */
  @Override
  public Roofline measure(Precision precision) {
    if (!Ceilings.warmUp()) {
      return new Roofline(Double.NaN, Double.NaN);
    }
    Ceilings ceilings = Ceilings.measure(threads);
    return new Roofline(ceilings.readBytes(), 2 * ceilings.multiplyAdds());
  }

  /** Made once and kept: its code is compiled once then. */
  CpuBackend open(Key key) {
    return backends.computeIfAbsent(key, k -> CpuBackend.product(k.threads, k.bits, k.precision));
  }

  void coolCaches() {
    caches.evict();
  }

  /** Bytes that runs may still take. */
  long room() {
    return memory - taken;
  }

  /** Notes what a run takes, or gives back. */
  void take(long bytes) {
    taken += bytes;
  }

  @Override
  public void close() {
    backends.values().forEach(CpuBackend::close);
    caches.close();
  }
}
