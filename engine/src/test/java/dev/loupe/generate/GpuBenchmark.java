package dev.loupe.generate;

import dev.loupe.Backend;
import dev.loupe.Loupe;
import dev.loupe.Options;
import dev.loupe.attention.AttentionSelection;
import dev.loupe.ops.Precision;
import dev.loupe.sampling.Sampling;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import java.util.Random;
import java.util.function.ToDoubleFunction;

/**
 * Speed of whole runs on the GPU: a prompt of 512 random tokens, then 400 more, without maps, with
 * those of one layer, and with all; 8 and 64 texts at once; and a prompt of 1,024 alone. One line
 * of JSON for each, times as median and range of five runs after two to warm up. Tokens that are
 * written count those of all texts.
 *
 * <p>Arguments: a model's folder, then precisions.
 */
final class GpuBenchmark {
  private static final int PROMPT = 512;
  private static final int TOKENS = 400;
  private static final int LONG_PROMPT = 1024;
  private static final int RUNS = 5;
  private static final int WARM_UP = 2;

  public static void main(String[] args) throws Exception {
    Path model = Path.of(args[0]);
    for (String name : Arrays.asList(args).subList(1, args.length)) {
      Precision precision = Precision.valueOf(name.toUpperCase(Locale.ROOT));
      Options options = Options.defaults().backend(Backend.CUDA).precision(precision);
      try (Loupe loupe = Loupe.open(model, options)) {
        int positions = loupe.info().config().nPositions(); // 1,024, but of tiny, a trial
        int prompt = Math.min(PROMPT, positions / 2);
        for (String maps : List.of("off", "one layer", "all")) {
          measure(loupe, model, name, maps, prompt, Math.min(TOKENS, positions - prompt), 1);
        }
        for (int texts : List.of(8, 64)) {
          measure(loupe, model, name, "off", prompt / 8, positions / 8, texts);
        }
        measure(loupe, model, name, "off", Math.min(LONG_PROMPT, positions), 0, 1);
      }
    }
  }

  private static void measure(
      Loupe loupe, Path model, String precision, String maps, int prompt, int tokens, int texts) {
    int[] ids = new Random(1).ints(prompt, 0, loupe.info().config().vocabSize()).toArray();
    Sampling sampling = texts == 1 ? Sampling.greedy() : Sampling.seeded(1);
    GenerateRequest request =
        GenerateRequest.ids(ids).tokens(tokens).sampling(sampling).samples(texts).ignoreEos(true);
    if (!maps.equals("off")) {
      AttentionSelection all = AttentionSelection.all();
      request.attention(maps.equals("all") ? all : all.layers(0));
    }
    Generation[] runs = new Generation[RUNS];
    for (int i = -WARM_UP; i < RUNS; i++) {
      Generation run = loupe.run(request).getFirst();
      if (i >= 0) {
        runs[i] = run;
      }
    }
    System.out.printf(
        Locale.ROOT,
        "{\"model\": \"%s\", \"device\": \"%s\", \"dtype\": \"%s\", \"maps\": \"%s\", "
            + "\"prefill_tokens\": %d, \"prefill_ms\": %s, \"decode_tokens\": %d, "
            + "\"decode_ms\": %s}%n",
        model.getFileName(),
        loupe.info().device(),
        precision,
        texts == 1 ? maps : "%s, %d texts".formatted(maps, texts),
        prompt,
        spread(runs, run -> run.timing().prefillMs()),
        tokens * texts,
        spread(runs, run -> run.timing().decodeMs()));
  }

  private static String spread(Generation[] runs, ToDoubleFunction<Generation> time) {
    double[] sorted = Arrays.stream(runs).mapToDouble(time).sorted().toArray();
    return String.format(
        Locale.ROOT,
        "{\"median\": %.3f, \"least\": %.3f, \"most\": %.3f}",
        sorted[sorted.length / 2],
        sorted[0],
        sorted[sorted.length - 1]);
  }

  private GpuBenchmark() {}
}
