package dev.loupe.model;

import dev.loupe.ops.AttentionHook;
import dev.loupe.ops.Batch;
import dev.loupe.ops.KvCache;
import dev.loupe.ops.Mask;
import dev.loupe.ops.Pass;
import dev.loupe.ops.Tensor;
import dev.loupe.ops.TensorArena;
import dev.loupe.ops.cpu.CpuOps;
import dev.loupe.sampling.Sampler;
import dev.loupe.sampling.Sampling;
import dev.loupe.weights.Checkpoint;
import dev.loupe.weights.config.Gpt2Config;
import dev.loupe.weights.io.CheckpointException;
import java.io.UncheckedIOException;
import java.util.BitSet;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.openjdk.jmh.annotations.Benchmark;
import org.openjdk.jmh.annotations.BenchmarkMode;
import org.openjdk.jmh.annotations.Mode;
import org.openjdk.jmh.annotations.OutputTimeUnit;
import org.openjdk.jmh.annotations.Scope;
import org.openjdk.jmh.annotations.State;
import org.openjdk.jmh.annotations.TearDown;
import org.openjdk.jmh.profile.GCProfiler;
import org.openjdk.jmh.runner.Runner;
import org.openjdk.jmh.runner.RunnerException;
import org.openjdk.jmh.runner.options.OptionsBuilder;
import org.openjdk.jmh.runner.options.TimeValue;

/**
 * A step of decoding on the CPU, sampler included, and the bytes of heap that it takes, which
 * should be none ({@code gc.alloc.rate.norm}). Run as {@link
 * dev.loupe.ops.cpu.InnerLoopsBenchmark}.
 */
@BenchmarkMode(Mode.AverageTime)
@OutputTimeUnit(TimeUnit.MICROSECONDS)
public class DecodeBenchmark {
  private static final int POSITION = 100;

  /** The demo model on all processors, {@value #POSITION} tokens in its cache. */
  @State(Scope.Benchmark)
  public static class Open {
    private final Checkpoint checkpoint = demo();
    private final CpuOps ops = new CpuOps(Runtime.getRuntime().availableProcessors());
    private final Transformer model = new Transformer(checkpoint, ops);
    private final TensorArena arena = ops.arena();
    private final Gpt2Config config = model.config();
    private final KvCache kv =
        new KvCache(arena, config.nLayer(), config.nHead(), config.headDim(), 1, POSITION + 1);
    private final Activations activations = Activations.allocate(arena, config, POSITION);
    private final Activations a = activations.rows(1);
    private final Tensor logits = arena.allocate(1, config.vocabSize());
    private final float[] row = new float[config.vocabSize()];
    private final Batch batch = Batch.step(0);
    private final BitSet seen = new BitSet();
    private final Sampler sampler;

    /** Opens the model and reads a prompt. */
    public Open() {
      Batch prompt = Batch.sequence(0, 0, new int[POSITION]);
      try (Pass pass = model.begin(prompt, kv, Mask.CAUSAL)) {
        model.forward(pass, activations, AttentionHook.NONE);
      }
      BitSet all = new BitSet();
      all.set(0, config.vocabSize());
      sampler = new Sampler(Sampling.greedy(), all);
      batch.set(0, 1, POSITION);
    }

    private static Checkpoint demo() {
      try {
        return Checkpoint.open(Golden.DEMO_MODEL);
      } catch (CheckpointException e) {
        throw new UncheckedIOException(e); // JMH's own subclass declares nothing
      }
    }

    @TearDown
    public void close() {
      try (checkpoint;
          ops;
          model;
          arena) { // in reverse
      }
    }
  }

  /** One token in, one token out. */
  @Benchmark
  public int step(Open open) {
    open.kv.truncate(0, POSITION);
    try (Pass pass = open.model.begin(open.batch, open.kv, Mask.CAUSAL)) {
      open.model.forward(pass, open.a, AttentionHook.NONE);
      open.model.logits(pass, open.a, 0, open.logits);
    }
    open.ops.read(open.logits, 0, open.row, open.row.length);
    return open.sampler.next(open.row, open.seen, 0, POSITION + 1);
  }

  /** Surefire runs this when it is named; its name keeps it out of the usual tests. */
  @Test
  void run() throws RunnerException {
    new Runner(
            new OptionsBuilder()
                .include(DecodeBenchmark.class.getName())
                .jvmArgsAppend(
                    "--add-modules", "jdk.incubator.vector", "--enable-native-access=ALL-UNNAMED")
                .addProfiler(GCProfiler.class)
                .forks(1)
                .warmupIterations(5)
                .warmupTime(TimeValue.seconds(1))
                .measurementIterations(5)
                .measurementTime(TimeValue.seconds(1))
                .build())
        .run();
  }
}
