package dev.loupe.model;

import static org.junit.jupiter.api.Assertions.assertEquals;

import com.google.gson.JsonObject;
import dev.loupe.ops.AttentionTap;
import dev.loupe.ops.Batch;
import dev.loupe.ops.KvCache;
import dev.loupe.ops.Mask;
import dev.loupe.ops.Tensor;
import dev.loupe.ops.TensorArena;
import dev.loupe.ops.cpu.CpuOps;
import dev.loupe.sampling.Distribution;
import dev.loupe.text.Tokenizer;
import dev.loupe.weights.Checkpoint;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.Locale;
import org.junit.jupiter.api.Test;

/** The loss on text that the demo model was not trained on, against that of float64. */
class HeldOutTest {
  @Test
  void lossIsThatOfFloat64() throws Exception {
    JsonObject meta = Golden.of("heldout").meta();
    int windows = meta.get("windows").getAsInt();
    int length = meta.get("window").getAsInt();
    Path text = Golden.TEST_DATA.resolve("golden/heldout/text.txt");
    try (Checkpoint checkpoint = Checkpoint.open(Golden.DEMO_MODEL);
        Tokenizer tokenizer = Tokenizer.open(Golden.DEMO_MODEL);
        CpuOps ops = new CpuOps(2);
        Transformer model = new Transformer(checkpoint, ops);
        TensorArena arena = ops.arena()) {
      int[] ids = tokenizer.encode(Files.readString(text), false);
      KvCache kv = new KvCache(arena, 6, 3, 64, 1, length);
      Activations a = Activations.allocate(arena, model.config(), length);
      Tensor logits = arena.allocate(length, model.config().vocabSize());
      float[] row = new float[model.config().vocabSize()];
      double loss = 0;
      int right = 0;
      for (int w = 0; w < windows; w++) {
        int[] window = Arrays.copyOfRange(ids, w * length, (w + 1) * length);
        kv.truncate(0, 0);
        model.forward(Batch.sequence(0, 0, window), kv, a, Mask.CAUSAL, AttentionTap.NONE);
        model.logits(a, 0, logits);
        for (int i = 1; i < length; i++) {
          ops.read(logits, i - 1, row, row.length);
          Distribution distribution = new Distribution(row);
          loss -= distribution.logprob(window[i]);
          right += distribution.rank(window[i]) == 0 ? 1 : 0;
        }
      }
      int scored = meta.get("tokens_scored").getAsInt();
      assertEquals(scored, windows * (length - 1));
      double expected = meta.get("nll_per_token").getAsDouble();
      System.out.println(
          String.format(
              Locale.ROOT,
              "held-out text: %.7f nats a token (float64: %.7f), perplexity %.3f, top-1 %.4f",
              loss / scored,
              expected,
              Math.exp(loss / scored),
              (double) right / scored));
      assertEquals(expected, loss / scored, 1e-6);
      // a tie of two tokens within f32's rounding may fall either way
      assertEquals(meta.get("top1_accuracy").getAsDouble(), (double) right / scored, 2e-4);
    }
  }
}
