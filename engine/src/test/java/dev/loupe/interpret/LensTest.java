package dev.loupe.interpret;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.loupe.Backend;
import dev.loupe.Loupe;
import dev.loupe.OnGpu;
import dev.loupe.Options;
import dev.loupe.TinyModel;
import dev.loupe.generate.GenerateRequest;
import dev.loupe.generate.Prompt;
import dev.loupe.generate.ReadListener;
import dev.loupe.generate.Token;
import dev.loupe.model.Golden;
import dev.loupe.model.ReferenceGpt2;
import dev.loupe.ops.Precision;
import dev.loupe.weights.Checkpoint;
import dev.loupe.weights.config.Gpt2Config;
import dev.loupe.weights.tensor.StoredTensor;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CancellationException;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

class LensTest {
  private static Loupe loupe;

  @TempDir Path folder;

  @BeforeAll
  static void open() throws Exception {
    loupe = Loupe.open(Golden.DEMO_MODEL, Options.defaults().backend(Backend.CPU).threads(2));
  }

  @AfterAll
  static void close() {
    loupe.close();
  }

  /**
   * The parts in float64, and another way round: each is put through the last layer norm with the
   * scale that it had, and through all of the head, whose mean is then taken off.
   */
  private static final class Textbook {
    final ReferenceGpt2 reference;
    private final Checkpoint checkpoint;
    private final Gpt2Config config;
    private final int position;

    Textbook(Checkpoint checkpoint, int[] ids, int position) {
      this.checkpoint = checkpoint;
      this.position = position;
      config = checkpoint.config();
      reference = new ReferenceGpt2(checkpoint, ids);
    }

    double[] tensor(String name) {
      StoredTensor stored = checkpoint.tensor(name);
      float[] values = new float[(int) stored.elements()];
      stored.read(0, values, 0, values.length);
      double[] wide = new double[values.length];
      for (int i = 0; i < wide.length; i++) {
        wide[i] = values[i];
      }
      return wide;
    }

    private double[] logits(double[] normed) {
      double[] head = tensor(checkpoint.has("lm_head.weight") ? "lm_head.weight" : "wte.weight");
      double[] logits = new double[config.vocabSize()];
      for (int i = 0; i < head.length; i++) {
        logits[i / normed.length] += head[i] * normed[i % normed.length];
      }
      return logits;
    }

    private static double mean(double[] x) {
      double sum = 0;
      for (double value : x) {
        sum += value;
      }
      return sum / x.length;
    }

    private double scale() {
      double[] x = reference.hidden[config.nLayer()][position];
      double variance = 0;
      for (double value : x) {
        variance += (value - mean(x)) * (value - mean(x)) / x.length;
      }
      return Math.sqrt(variance + config.layerNormEpsilon());
    }

    double adds(double[] part, int target) {
      double[] weight = tensor("ln_f.weight");
      double[] normed = new double[part.length];
      for (int c = 0; c < part.length; c++) {
        normed[c] = (part[c] - mean(part)) / scale() * weight[c];
      }
      double[] logits = logits(normed);
      return logits[target] - mean(logits);
    }

    double[] head(int layer, int head) {
      double[] weight = tensor("h.%d.attn.c_proj.weight".formatted(layer));
      int width = config.nEmbd();
      double[] out = new double[width];
      for (int i = head * config.headDim(); i < (head + 1) * config.headDim(); i++) {
        for (int c = 0; c < width; c++) {
          out[c] += reference.heads[layer][position][i] * weight[i * width + c];
        }
      }
      return out;
    }

    double[] mlp(int layer) {
      double[] out = minus(hidden(layer + 1), hidden(layer));
      for (int head = 0; head < config.nHead(); head++) {
        out = minus(out, head(layer, head));
      }
      return minus(out, tensor("h.%d.attn.c_proj.bias".formatted(layer)));
    }

    double[] hidden(int layer) {
      return reference.hidden[layer][position];
    }

    private static double[] minus(double[] x, double[] y) {
      double[] difference = new double[x.length];
      for (int c = 0; c < x.length; c++) {
        difference[c] = x[c] - y[c];
      }
      return difference;
    }

    /** The logit lens: what would be said if it ended after so many layers. */
    double[] logprobs(int layers) {
      double[] x = hidden(layers);
      double variance = 0;
      for (double value : x) {
        variance += (value - mean(x)) * (value - mean(x)) / x.length;
      }
      double[] normed = new double[x.length];
      double[] weight = tensor("ln_f.weight");
      double[] bias = tensor("ln_f.bias");
      for (int c = 0; c < x.length; c++) {
        double one = (x[c] - mean(x)) / Math.sqrt(variance + config.layerNormEpsilon());
        normed[c] = one * weight[c] + bias[c];
      }
      double[] logits = logits(normed);
      double sum = 0;
      for (double logit : logits) {
        sum += Math.exp(logit);
      }
      for (int v = 0; v < logits.length; v++) {
        logits[v] -= Math.log(sum);
      }
      return logits;
    }
  }

  @ParameterizedTest
  @CsvSource({"romeo, 3", "repeat, 20", "one, 0", "t65, 64"})
  void allOfItAgreesWithFloat64(String prompt, int position) throws Exception {
    int[] ids = Golden.of(prompt).ids();
    Lens lens = loupe.lens(Prompt.ids(ids), position, -1, 3);
    try (Checkpoint checkpoint = Checkpoint.open(Golden.DEMO_MODEL)) {
      Textbook textbook = new Textbook(checkpoint, ids, position);
      int target = lens.target();
      double[] logits = textbook.reference.logits[position];
      assertEquals(logits[target] - Textbook.mean(logits), lens.logit(), 1e-3);
      for (int layers = 0; layers < lens.layers().size(); layers++) {
        double[] logprobs = textbook.logprobs(layers);
        Lens.Guess guess = lens.layers().get(layers);
        assertEquals(logprobs[target], guess.logprob(), 1e-3);
        assertEquals(
            logprobs[guess.top().get(2).id()], guess.top().get(2).logprob(), 1e-3, "third");
        int rank = 0;
        for (double logprob : logprobs) {
          rank += logprob > logprobs[target] + 1e-4 ? 1 : 0;
        }
        assertTrue(Math.abs(guess.rank() - rank) <= 1, guess.rank() + " and " + rank);
      }
      for (int layer = 0; layer < lens.mlps().size(); layer++) {
        for (int head = 0; head < lens.heads().get(layer).size(); head++) {
          double adds = textbook.adds(textbook.head(layer, head), target);
          assertEquals(adds, lens.heads().get(layer).get(head), 1e-4, layer + "." + head);
        }
        double[] bias = textbook.tensor("h.%d.attn.c_proj.bias".formatted(layer));
        assertEquals(textbook.adds(bias, target), lens.attentionBiases().get(layer), 1e-6);
        assertEquals(textbook.adds(textbook.mlp(layer), target), lens.mlps().get(layer), 1e-3);
      }
      assertEquals(textbook.adds(textbook.hidden(0), target), lens.token() + lens.place(), 1e-4);
      double[] place =
          java.util.Arrays.copyOfRange(
              textbook.tensor("wpe.weight"), position * 192, (position + 1) * 192);
      assertEquals(textbook.adds(place, target), lens.place(), 1e-6);
    }
  }

  private static double sum(Lens lens) {
    double sum = lens.token() + lens.place() + lens.normBias();
    for (int layer = 0; layer < lens.mlps().size(); layer++) {
      sum += lens.attentionBiases().get(layer) + lens.mlps().get(layer);
      sum += lens.heads().get(layer).stream().mapToDouble(v -> v).sum();
    }
    return sum;
  }

  @Test
  void theLogitIsTheSumOfItsParts() throws Exception {
    for (int target : new int[] {0, 198, 1000, 1023}) {
      Lens lens = loupe.lens(Prompt.text("What, I am a lord,"), -1, target, 0);
      assertEquals(lens.logit(), sum(lens), 1e-4);
    }
    Path tiny = TinyModel.in(folder).folder();
    for (Precision precision : Precision.values()) {
      Options options = Options.defaults().backend(Backend.CPU).threads(1).precision(precision);
      try (Loupe other = Loupe.open(tiny, options)) {
        Lens lens = other.lens(Prompt.text("To be or not"), 2, 5, 0);
        double near = precision == Precision.F32 ? 1e-4 : 5e-3; // the head is rounded as well
        assertEquals(lens.logit(), sum(lens), near, precision.name());
      }
    }
  }

  @Test
  void theLastLayerIsWhatTheModelSays() {
    GenerateRequest request = GenerateRequest.text("ROMEO: What, I am").tokens(0).logprobs(4);
    List<Token> tokens = loupe.run(request).getFirst().tokens();
    for (int position = 0; position + 1 < tokens.size(); position++) {
      Lens lens = loupe.lens(Prompt.text("ROMEO: What, I am"), position, -1, 4);
      Token next = tokens.get(position + 1);
      assertEquals(next.id(), lens.target()); // the one that follows
      assertEquals(next.label(), lens.label());
      assertEquals(next.logprob(), lens.layers().getLast().logprob());
      assertEquals(next.rank(), lens.layers().getLast().rank());
      assertEquals(next.top(), lens.layers().getLast().top());
      assertEquals(position + 2, lens.tokens().size());
    }
  }

  @Test
  void atTheEndItIsTheLikeliest() {
    Lens lens = loupe.lens(Prompt.text("ROMEO:"), -1, -1, 1);
    assertEquals(0, lens.layers().getLast().rank());
    assertEquals(lens.target(), lens.layers().getLast().top().getFirst().id());
    assertEquals(lens.position() + 1, lens.tokens().size());
    Lens other = loupe.lens(Prompt.text("ROMEO:"), -1, 13, 1);
    assertEquals(13, other.target());
    assertTrue(other.layers().getLast().rank() > 0);
  }

  @Test
  void whatIsNotThereIsSaid() {
    Prompt request = Prompt.ids(1, 2, 3);
    refused("no token 3: the text has tokens 0..2", () -> loupe.lens(request, 3, -1, 1));
    refused(
        "token id 1024 is outside the vocabulary 0..1023", () -> loupe.lens(request, 0, 1024, 1));
    refused("the top -1 tokens: not 0 or more", () -> loupe.lens(request, 0, -1, -1));
    int[] long257 = new int[257];
    refused(
        "token 256: the model reads 256 tokens", () -> loupe.lens(Prompt.ids(long257), -1, -1, 1));
    assertEquals(255, loupe.lens(Prompt.ids(long257), 255, -1, 1).position());
  }

  private static void refused(String message, org.junit.jupiter.api.function.Executable call) {
    assertEquals(message, assertThrows(IllegalArgumentException.class, call).getMessage());
  }

  @Test
  void itCanBeEndedWhileItReads() {
    List<Integer> layers = new ArrayList<>();
    ReadListener listener =
        (layersDone, count) -> {
          layers.add(layersDone);
          return layersDone < 2;
        };
    assertThrows(
        CancellationException.class, () -> loupe.lens(Prompt.text("ROMEO:"), -1, -1, 1, listener));
    assertEquals(List.of(1, 2), layers);
  }

  @OnGpu
  @Test
  void theGpuSaysTheSame() throws Exception {
    Path tiny = TinyModel.in(folder).folder();
    Prompt request = Prompt.text("To be or not to be");
    try (Loupe cpu = Loupe.open(tiny, Options.defaults().backend(Backend.CPU).threads(2))) {
      Lens expected = cpu.lens(request, 3, -1, 3);
      for (Precision precision : List.of(Precision.F32, Precision.F16, Precision.INT8)) {
        double near = precision == Precision.F32 ? 1e-4 : 2e-2;
        Options options = Options.defaults().backend(Backend.CUDA).precision(precision);
        try (Loupe gpu = Loupe.open(tiny, options)) {
          Lens lens = gpu.lens(request, 3, -1, 3);
          assertEquals(lens.logit(), sum(lens), near);
          assertEquals(expected.logit(), lens.logit(), near);
          for (int i = 0; i < expected.layers().size(); i++) {
            assertEquals(expected.layers().get(i).logprob(), lens.layers().get(i).logprob(), near);
          }
          for (int i = 0; i < expected.heads().size(); i++) {
            for (int h = 0; h < expected.heads().get(i).size(); h++) {
              assertEquals(expected.heads().get(i).get(h), lens.heads().get(i).get(h), near);
            }
          }
        }
      }
    }
  }
}
