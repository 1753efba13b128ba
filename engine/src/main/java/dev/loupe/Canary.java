package dev.loupe;

import dev.loupe.attention.AttentionMaps;
import dev.loupe.attention.AttentionSelection;
import dev.loupe.cuda.CacheFile;
import dev.loupe.cuda.Card;
import dev.loupe.cuda.selftest.FirstContact;
import dev.loupe.generate.GenerateRequest;
import dev.loupe.generate.Generation;
import dev.loupe.generate.OpenModel;
import dev.loupe.generate.Scheduler;
import dev.loupe.generate.Token;
import dev.loupe.model.ModelInfo;
import dev.loupe.model.Transformer;
import dev.loupe.ops.BackendException;
import dev.loupe.ops.Precision;
import dev.loupe.ops.cpu.CpuOps;
import dev.loupe.sampling.NotFiniteException;
import dev.loupe.sampling.Sampling;
import dev.loupe.text.Tokenizer;
import dev.loupe.weights.Checkpoint;
import dev.loupe.weights.config.Gpt2Config;
import dev.loupe.weights.io.Progress;
import dev.loupe.weights.tensor.StoredTensor;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.CancellationException;
import java.util.stream.IntStream;
import java.util.stream.Stream;
import org.jspecify.annotations.Nullable;

/**
 * At the first open of a model on a card, eight tokens that the GPU writes, held to what the CPU
 * makes of the same tokens: their logprobs, that each was the likeliest, and all attention maps.
 *
 * <p>All layers run the same kernels on the same shapes, so of a large model the first two are
 * enough: the CPU's copy of the weights stays below 0.8 GB. Where even that is not free, the GPU's
 * tokens only have to be numbers.
 */
final class Canary {
  private static final int TOKENS = 8;
  private static final int MOST_IDS = 32; // with the prompt
  private static final long MOST_PARAMETERS = 200_000_000; // of a model that is compared whole
  private static final int FEW_LAYERS = 2;

  private final Options options;
  private final Checkpoint checkpoint;
  private final Tokenizer tokenizer;
  private final Card card;

  Canary(Options options, Checkpoint checkpoint, Tokenizer tokenizer, Card card) {
    this.options = options;
    this.checkpoint = checkpoint;
    this.tokenizer = tokenizer;
    this.card = card;
  }

  /**
   * Runs, unless this model was right before with the same choice of kernels.
   *
   * @param gpu the model on the GPU
   * @param choice names what decides which kernels serve
   * @return what could not be seen, in a sentence; empty if all is well
   * @throws BackendException if the GPU computes something else than the CPU; nothing known of the
   *     card is trusted any more then
   */
  Optional<String> check(Transformer gpu, String choice) {
    @Nullable CacheFile file = null;
    try {
      List<String> of = new ArrayList<>(List.of("canary 1", choice));
      of.add(options.precision() + " " + options.gemm());
      of.addAll(identity());
      file = CacheFile.of(card, "canary", of);
      if (file.lines().isPresent()) {
        return Optional.empty();
      }
    } catch (IOException e) {
      // first contact has said that nothing can be kept
    }
    Optional<String> note = compare(gpu);
    try {
      if (file != null && note.isEmpty()) {
        file.write(List.of(checkpoint.source().toString()));
      }
    } catch (IOException e) {
      // likewise
    }
    return note;
  }

  /** What tells this model from others without reading all of it. */
  private List<String> identity() {
    List<String> words = new ArrayList<>(List.of(checkpoint.config().toString()));
    for (StoredTensor tensor : checkpoint.tensors()) {
      float[] some = new float[(int) Math.min(16, tensor.elements())];
      tensor.read(tensor.elements() / 2 / some.length * some.length, some, 0, some.length);
      words.add(tensor.name() + tensor.dtype() + tensor.shape() + Arrays.toString(some));
    }
    return words;
  }

  private Optional<String> compare(Transformer gpu) {
    Gpt2Config all = checkpoint.config();
    boolean whole = checkpoint.parameters() <= MOST_PARAMETERS;
    Gpt2Config config = whole ? all : all.withLayers(Math.min(FEW_LAYERS, all.nLayer()));
    int ids = Math.min(MOST_IDS, all.nPositions());
    int tokens = Math.min(TOKENS, ids - 1);
    Generation written;
    try {
      written =
          run(
              gpu.variant(config, Map.of()),
              read(prompt(ids - tokens), 0).tokens(tokens).sampling(Sampling.greedy()));
    } catch (NotFiniteException e) {
      if (cpuComputes(config, prompt(ids - tokens))) {
        throw wrong(String.valueOf(e.getMessage()));
      }
      return Optional.empty(); // the model is to blame, and says so when it is run
    }
    long needed = 2 * bytes(config);
    if (available() < needed) {
      return Optional.of(
          "the GPU's tokens were not compared with the CPU's, which takes %d MB of memory"
              .formatted(needed >> 20));
    }
    int[] same = written.tokens().stream().mapToInt(Token::id).toArray();
    String difference = difference(onCpu(config, read(same, 1)), written, config.nLayer());
    if (!difference.isEmpty()) {
      throw wrong(difference);
    }
    return Optional.empty();
  }

  private static GenerateRequest read(int[] ids, int top) {
    return GenerateRequest.ids(ids).tokens(0).logprobs(top).attention(AttentionSelection.all());
  }

  private Generation run(Transformer model, GenerateRequest request) {
    ModelInfo info =
        new ModelInfo("canary", Optional.empty(), model.config(), "", "", model.ops().device(), 0);
    OpenModel open = new OpenModel(model, checkpoint, tokenizer, info, () -> "");
    Generation run = Scheduler.alone(open, request).getFirst();
    if (run.finish() == Generation.Finish.INTERRUPTED) {
      throw new CancellationException("interrupted while the GPU was compared with the CPU");
    }
    return run;
  }

  private Generation onCpu(Gpt2Config config, GenerateRequest request) {
    int threads = options.threads();
    try (CpuOps ops =
            new CpuOps(
                threads == 0 ? Runtime.getRuntime().availableProcessors() : threads,
                options.precision(),
                options.vectorBits());
        Transformer cpu = new Transformer(checkpoint, config, ops, Progress.NONE)) {
      return run(cpu, request);
    }
  }

  /** False if the CPU's numbers are not finite either. */
  private boolean cpuComputes(Gpt2Config config, int[] ids) {
    try {
      return onCpu(config, read(ids, 0)).tokens().stream()
          .skip(1)
          .allMatch(token -> Double.isFinite(token.logprob()));
    } catch (NotFiniteException e) {
      return false;
    }
  }

  /** Ids spread over the vocabulary. */
  private int[] prompt(int n) {
    int vocabulary = checkpoint.config().vocabSize();
    return IntStream.iterate(13, i -> (i + 997) % vocabulary)
        .limit(vocabulary)
        .filter(tokenizer::contains)
        .limit(n)
        .toArray();
  }

  /**
   * What rounding may change in a logprob. Errors of the layers are independent of each other, so
   * together they grow with the root of their number. In a model of six layers 2e-4 (f32), 0.05
   * (f16) and 0.3 (bf16, int8) were seen at most between the emulated GPU and the CPU; larger
   * models have logits a few times larger, and their errors with them.
   */
  private static double tolerance(Precision precision, int layers) {
    double sixLayers =
        switch (precision) {
          case F32 -> 2e-4;
          case F16 -> 0.05;
          case BF16, INT8 -> 0.3;
        };
    return 4 * sixLayers * Math.sqrt(Math.max(1, layers / 6.0));
  }

  /** Where the GPU's run is not that of the CPU, in words; empty if it is. */
  private String difference(Generation cpu, Generation gpu, int layers) {
    double tolerance = tolerance(options.precision(), layers);
    for (int i = 1; i < gpu.tokens().size(); i++) {
      Token expected = cpu.tokens().get(i);
      Token actual = gpu.tokens().get(i);
      if (!(Math.abs(expected.logprob() - actual.logprob()) <= tolerance)) {
        return String.format(
            Locale.ROOT,
            "token %d has log p %.4f, and %.4f on the CPU",
            i,
            actual.logprob(),
            expected.logprob());
      }
      Token.Candidate best = expected.top().getFirst();
      // two logits that are each off by the tolerance may change places
      if (actual.generated() && best.logprob() - expected.logprob() > 2 * tolerance) {
        return String.format(
            Locale.ROOT,
            "token %d is %d, which the CPU finds less likely than %d by %.4f in log p",
            i,
            actual.id(),
            best.id(),
            best.logprob() - expected.logprob());
      }
    }
    return difference(cpu.attention(), gpu.attention(), tolerance);
  }

  /** A probability changes by at most a quarter of what its score does, and scores by less. */
  private static String difference(AttentionMaps cpu, AttentionMaps gpu, double tolerance) {
    for (int layer : gpu.layers()) {
      for (int head : gpu.heads()) {
        for (int query = 0; query < gpu.tokens(); query++) {
          float[] expected = cpu.row(layer, head, query);
          float[] actual = gpu.row(layer, head, query);
          for (int key = 0; key <= query; key++) {
            if (!(Math.abs(expected[key] - actual[key]) <= tolerance)) {
              return "attention of layer %d, head %d from token %d to %d is %s, and %s on the CPU"
                  .formatted(layer, head, query, key, actual[key], expected[key]);
            }
          }
        }
      }
    }
    return "";
  }

  private BackendException wrong(String what) {
    return new BackendException(
        "%s computes this model otherwise than the CPU: %s; %s"
            .formatted(card.name(), what, FirstContact.distrust(card)));
  }

  /** What the CPU's copy of the weights takes at most. */
  private static long bytes(Gpt2Config config) {
    long width = config.nEmbd();
    long layer = 4 * width * width + 2 * width * config.nInner();
    return Float.BYTES
        * (config.nLayer() * layer + width * (2L * config.vocabSize() + config.nPositions()));
  }

  /** Memory that is free for the asking; all there may be where the system does not tell. */
  private static long available() {
    try (Stream<String> lines = Files.lines(Path.of("/proc/meminfo"))) {
      return lines
          .filter(line -> line.matches("MemAvailable: +[0-9]{1,15} kB"))
          .mapToLong(line -> Long.parseLong(line.replaceAll("[^0-9]", "")) << 10)
          .findFirst()
          .orElse(Long.MAX_VALUE);
    } catch (IOException | UncheckedIOException e) {
      return Long.MAX_VALUE;
    }
  }
}
