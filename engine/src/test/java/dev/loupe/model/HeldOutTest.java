package dev.loupe.model;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.google.gson.JsonObject;
import dev.loupe.ops.AttentionHook;
import dev.loupe.ops.Batch;
import dev.loupe.ops.KvCache;
import dev.loupe.ops.Mask;
import dev.loupe.ops.Pass;
import dev.loupe.ops.Precision;
import dev.loupe.ops.Tensor;
import dev.loupe.ops.TensorArena;
import dev.loupe.ops.cpu.CpuOps;
import dev.loupe.sampling.TokenDistribution;
import dev.loupe.text.Tokenizer;
import dev.loupe.weights.Checkpoint;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import org.jspecify.annotations.Nullable;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** The loss on text that the demo model was not trained on, against that of float64. */
class HeldOutTest {
  private static @Nullable Reading whole; // of f32, which each test needs

  private JsonObject meta = new JsonObject();
  private int scored;

  @BeforeEach
  void read() throws Exception {
    meta = Golden.of("heldout").meta();
    scored = meta.get("tokens_scored").getAsInt();
  }

  /**
   * What a model makes of the text.
   *
   * @param loss nats a token
   * @param likeliest the token thought likeliest at each place
   * @param right how often that is the one that follows
   */
  private record Reading(double loss, List<Integer> likeliest, double right) {}

  private Reading whole() throws Exception {
    Reading reading = whole == null ? read(Precision.F32) : whole;
    whole = reading;
    return reading;
  }

  private Reading read(Precision precision) throws Exception {
    int windows = meta.get("windows").getAsInt();
    int length = meta.get("window").getAsInt();
    assertEquals(scored, windows * (length - 1));
    Path text = Golden.TEST_DATA.resolve("golden/heldout/text.txt");
    try (Checkpoint checkpoint = Checkpoint.open(Golden.DEMO_MODEL);
        Tokenizer tokenizer = Tokenizer.open(Golden.DEMO_MODEL);
        CpuOps ops = new CpuOps(2, precision, 0);
        Transformer model = new Transformer(checkpoint, ops);
        TensorArena arena = ops.arena()) {
      int[] ids = tokenizer.encode(Files.readString(text), false);
      KvCache kv = new KvCache(arena, 6, 3, 64, 1, length);
      Activations a = Activations.allocate(arena, model.config(), length);
      Tensor logits = arena.allocate(length, model.config().vocabSize());
      float[] row = new float[model.config().vocabSize()];
      double loss = 0;
      int right = 0;
      List<Integer> likeliest = new ArrayList<>();
      for (int w = 0; w < windows; w++) {
        int[] window = Arrays.copyOfRange(ids, w * length, (w + 1) * length);
        kv.truncate(0, 0);
        try (Pass pass = model.begin(Batch.sequence(0, 0, window), kv, Mask.CAUSAL)) {
          model.forward(pass, a, AttentionHook.NONE);
          model.logits(pass, a, 0, logits);
        }
        for (int i = 1; i < length; i++) {
          ops.read(logits, i - 1, row, row.length);
          TokenDistribution distribution = new TokenDistribution(row, tokenizer.ids());
          loss -= distribution.logprob(window[i]);
          right += distribution.rank(window[i]) == 0 ? 1 : 0;
          likeliest.add(distribution.top(1).getFirst().id());
        }
      }
      return new Reading(loss / scored, likeliest, (double) right / scored);
    }
  }

  @Test
  void lossIsThatOfFloat64() throws Exception {
    Reading reading = whole();
    double expected = meta.get("nll_per_token").getAsDouble();
    System.out.println(
        String.format(
            Locale.ROOT,
            "held-out text: %.7f nats a token (float64: %.7f), perplexity %.3f, top-1 %.4f",
            reading.loss(),
            expected,
            Math.exp(reading.loss()),
            reading.right()));
    assertEquals(expected, reading.loss(), 1e-6);
    // a tie of two tokens within f32's rounding may fall either way
    assertEquals(meta.get("top1_accuracy").getAsDouble(), reading.right(), 2e-4);
  }

  /** Weights that are narrower change the text little: how little, is printed and bounded. */
  @Tag("sweep")
  @ParameterizedTest
  @CsvSource({"F16, 0, 1", "BF16, 1e-4, 0.99", "INT8, 1e-3, 0.985"})
  void narrowWeightsReadNearlyAlike(Precision precision, double loss, double agreement)
      throws Exception {
    Reading whole = whole();
    Reading narrow = read(precision);
    int same = 0;
    for (int i = 0; i < scored; i++) {
      same += whole.likeliest().get(i).equals(narrow.likeliest().get(i)) ? 1 : 0;
    }
    System.out.println(
        String.format(
            Locale.ROOT,
            "held-out text, %s weights: %+.6f nats a token, perplexity %.3f, top-1 as f32 %.4f",
            precision,
            narrow.loss() - whole.loss(),
            Math.exp(narrow.loss()),
            (double) same / scored));
    assertEquals(whole.loss(), narrow.loss(), loss);
    assertTrue((double) same / scored >= agreement);
    if (precision != Precision.F16) { // which the demo model's weights are already
      assertNotEquals(whole.loss(), narrow.loss(), "the weights are as they were");
    }
  }
}
