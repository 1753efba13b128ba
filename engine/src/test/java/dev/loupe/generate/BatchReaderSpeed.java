package dev.loupe.generate;

import dev.loupe.attention.AttentionSelection;
import dev.loupe.model.Activations;
import dev.loupe.model.ModelInfo;
import dev.loupe.model.Transformer;
import dev.loupe.ops.AttentionHook;
import dev.loupe.ops.Batch;
import dev.loupe.ops.KvCache;
import dev.loupe.ops.Mask;
import dev.loupe.ops.Pass;
import dev.loupe.ops.TensorArena;
import dev.loupe.ops.cpu.CpuOps;
import dev.loupe.text.Tokenizer;
import dev.loupe.weights.Checkpoint;
import dev.loupe.weights.config.Gpt2Config;
import java.lang.management.ManagementFactory;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Iterator;
import java.util.List;
import java.util.Optional;
import java.util.Random;

/**
 * How fast texts are read in passes of several, against the prefill of one prompt of 512 tokens, in
 * turns: {@code BatchReaderSpeed MODEL [THREADS [TURNS [BUDGETS [LENGTHS]]]]}, the last two as
 * lists with commas between.
 *
 * <p>One thread is measured by the processor time that it takes, which what else the machine does
 * touches least; several by the clock.
 */
final class BatchReaderSpeed implements AutoCloseable {
  private static final int PROMPT = 512;

  /** What is read of the texts. */
  enum Wanted {
    NOTHING(Optional.empty(), false),
    LOGPROBS(Optional.empty(), true),
    STATISTICS(Optional.of(AttentionSelection.all()), false),
    BOTH(Optional.of(AttentionSelection.all()), true),
    WITH_NORMS(Optional.of(AttentionSelection.all().withValueNorms()), true);

    final Optional<AttentionSelection> attention;
    final boolean logprobs;

    Wanted(Optional<AttentionSelection> attention, boolean logprobs) {
      this.attention = attention;
      this.logprobs = logprobs;
    }
  }

  private final Random random = new Random(20_26);
  private final Checkpoint checkpoint;
  private final Tokenizer tokenizer;
  private final OpenModel open;
  private final int threads;
  private final CpuOps ops;
  private final Transformer model;
  private final TensorArena arena;
  private final KvCache kv;
  private final Activations activations;
  private final Batch prompt;

  private BatchReaderSpeed(Path folder, int threads) throws Exception {
    checkpoint = Checkpoint.open(folder);
    tokenizer = Tokenizer.open(checkpoint, Optional.empty());
    this.threads = threads;
    ops = new CpuOps(threads);
    model = new Transformer(checkpoint, ops);
    Gpt2Config config = model.config();
    ModelInfo info =
        new ModelInfo(folder.toString(), Optional.empty(), config, "", "cpu", ops.device(), 0);
    open = new OpenModel(model, checkpoint, tokenizer, info, () -> "");
    arena = ops.arena();
    kv = new KvCache(arena, config.nLayer(), config.nHead(), config.headDim(), 1, PROMPT);
    activations = Activations.allocate(arena, config, PROMPT);
    prompt = Batch.sequence(0, 0, text(PROMPT));
  }

  private int[] text(int tokens) {
    return random.ints(tokens, 0, tokenizer.size()).toArray();
  }

  /** Texts of 20 to 60 tokens where {@code tokens} is 40, else of just so many. */
  private List<int[]> texts(int tokens, int all) {
    List<int[]> texts = new ArrayList<>();
    for (int read = 0; read < all; read += texts.getLast().length) {
      texts.add(text(tokens == 40 ? random.nextInt(20, 61) : tokens));
    }
    return texts;
  }

  private long now() {
    return threads == 1
        ? ManagementFactory.getThreadMXBean().getCurrentThreadCpuTime()
        : System.nanoTime();
  }

  /** Tokens per second of a prompt's pass, without logits. */
  private double prefill() {
    long start = now();
    kv.truncate(0, 0);
    try (Pass pass = model.begin(prompt, kv, Mask.CAUSAL)) {
      model.forward(pass, activations, AttentionHook.NONE);
    }
    return PROMPT * 1e9 / (now() - start);
  }

  private double read(BatchReader reader, List<int[]> texts) {
    long start = now();
    long tokens = 0;
    for (Iterator<BatchReader.Result> it = reader.read(texts.iterator()); it.hasNext(); ) {
      BatchReader.Result result = it.next();
      if (result.error().isPresent()) {
        throw new IllegalStateException(result.error().get());
      }
      tokens += result.tokens();
    }
    return tokens * 1e9 / (now() - start);
  }

  private void measure(Wanted wanted, int length, int budget, int turns) {
    List<int[]> texts = texts(length, Math.max(budget, model.config().nPositions()));
    double[] speeds = new double[turns];
    double[] ratios = new double[turns];
    try (BatchReader reader = new BatchReader(open, wanted.attention, wanted.logprobs, budget)) {
      double _ = read(reader, texts);
      for (int turn = 0; turn < turns; turn++) {
        double before = prefill();
        speeds[turn] = read(reader, texts);
        ratios[turn] = speeds[turn] * 2 / (before + prefill());
      }
    }
    Arrays.sort(speeds);
    Arrays.sort(ratios);
    System.out.printf(
        "%-10s  %6d  %6d  %8.1f  %5.3f  %5.3f  %5.3f%n",
        wanted, length, budget, speeds[turns / 2], ratios[turns / 2], ratios[0], ratios[turns - 1]);
  }

  public static void main(String[] args) throws Exception {
    int threads = args.length > 1 ? Integer.parseInt(args[1]) : 1;
    int turns = args.length > 2 ? Integer.parseInt(args[2]) : 5;
    int[] budgets = numbers(args.length > 3 ? args[3] : "256,512,1024,2048");
    int[] lengths = numbers(args.length > 4 ? args[4] : "40,512,1024");
    try (BatchReaderSpeed speed = new BatchReaderSpeed(Path.of(args[0]), threads)) {
      for (int i = 0; i < 3; i++) { // warms up
        double _ = speed.prefill();
      }
      System.out.println("wanted      length  budget  tokens/s  times prefill: median, range");
      for (int budget : budgets) {
        for (int length : lengths) {
          for (Wanted wanted : Wanted.values()) {
            speed.measure(wanted, length, budget, turns);
          }
        }
      }
    }
  }

  private static int[] numbers(String list) {
    return Arrays.stream(list.split(",")).mapToInt(Integer::parseInt).toArray();
  }

  @Override
  public void close() {
    try (checkpoint;
        ops;
        model;
        arena) { // in reverse
    }
  }
}
