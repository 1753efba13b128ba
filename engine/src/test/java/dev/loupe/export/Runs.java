package dev.loupe.export;

import com.google.gson.Gson;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import dev.loupe.Checkout;
import dev.loupe.attention.AttentionMaps;
import dev.loupe.attention.HeadStatistics;
import dev.loupe.generate.Generation;
import dev.loupe.generate.Token;
import dev.loupe.model.ModelInfo;
import dev.loupe.sampling.Sampling;
import dev.loupe.weights.config.Activation;
import dev.loupe.weights.config.Gpt2Config;
import dev.loupe.weights.tensor.DType;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.FloatBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Random;
import java.util.stream.IntStream;

/** Runs to export: made-up ones, and the golden ones of the demo model. */
public final class Runs {
  private static final Path TEST_DATA = Checkout.TEST_DATA;

  private Runs() {}

  /** Tokens with these labels, ids from 100 on; the first has no logprob. */
  static List<Token> tokens(int promptLength, String... labels) {
    List<Token> tokens = new ArrayList<>();
    for (int i = 0; i < labels.length; i++) {
      tokens.add(
          new Token(
              100 + i,
              labels[i].replace('·', 'Ġ'),
              labels[i],
              HexFormat.of()
                  .withUpperCase()
                  .formatHex(labels[i].replace('·', ' ').getBytes(StandardCharsets.UTF_8)),
              i,
              i + 1,
              false,
              i >= promptLength,
              i == 0 ? Double.NaN : -0.25 * i,
              i == 0 ? -1 : i % 7,
              i == 0 ? List.of() : List.of(new Token.Candidate(7, "x", -0.5))));
    }
    return tokens;
  }

  /** Causal softmax rows of random scores, and the scores themselves. */
  static Generation random(
      int[] layers, int[] heads, int promptLength, boolean withScores, String... labels) {
    return random(DType.F32, layers, heads, promptLength, withScores, labels);
  }

  /** The same with maps of {@code dtype}. */
  static Generation random(
      DType dtype,
      int[] layers,
      int[] heads,
      int promptLength,
      boolean withScores,
      String... labels) {
    Random random = new Random(20260729);
    int t = labels.length;
    AttentionMaps maps = AttentionMaps.allocate(layers, heads, t, dtype);
    AttentionMaps scores = AttentionMaps.allocate(layers, heads, t);
    for (int layer : layers) {
      for (int head : heads) {
        for (int query = 0; query < t; query++) {
          float[] row = new float[query + 1];
          for (int key = 0; key <= query; key++) {
            row[key] = (float) (3 * random.nextGaussian() + (key == 0 ? 3 : 0));
          }
          scores.put(layer, head, query, row);
          maps.put(layer, head, query, softmax(row));
        }
      }
    }
    return run(
        tokens(promptLength, labels),
        promptLength,
        maps,
        withScores ? Optional.of(scores) : Optional.empty());
  }

  static Generation run(
      List<Token> tokens, int promptLength, AttentionMaps maps, Optional<AttentionMaps> scores) {
    Gpt2Config config =
        new Gpt2Config(6, 3, 192, 256, 1024, 768, Activation.GELU_NEW, 1e-5f, true, false, -1, -1);
    return new Generation(
        new ModelInfo("models/demo", Optional.empty(), config, "f32", "cpu", "cpu, 1 thread", 41.5),
        Sampling.seeded(7),
        0,
        "generated \"text\"\n",
        promptLength,
        tokens,
        Generation.Finish.LENGTH,
        0,
        Optional.of(maps),
        scores,
        Optional.empty(),
        Optional.empty(),
        Optional.empty(),
        new Generation.Timing(12.5, promptLength, 30, tokens.size() - promptLength));
  }

  /** Head 2.3 reads the token before, head 2.0 all alike; with the scores of both. */
  static Generation previousToken(int tokens) {
    AttentionMaps maps = AttentionMaps.allocate(new int[] {2}, new int[] {0, 3}, tokens);
    HeadStatistics scores = HeadStatistics.ofText(maps.layers(), maps.heads(), false);
    scores.tokens(IntStream.range(0, tokens).toArray());
    for (int query = 0; query < tokens; query++) {
      float[] previous = new float[query + 1];
      previous[Math.max(0, query - 1)] = 1;
      float[] even = new float[query + 1];
      Arrays.fill(even, 1f / (query + 1));
      maps.put(2, 0, query, even);
      maps.put(2, 3, query, previous);
      scores.row(2, 0, 0, query, even);
      scores.row(2, 3, 0, query, previous);
    }
    Generation plain = Runs.run(Runs.tokens(2, Runs.labels(tokens)), 2, maps, Optional.empty());
    return new Generation(
        plain.model(),
        plain.sampling(),
        plain.sample(),
        plain.text(),
        plain.promptLength(),
        plain.tokens(),
        plain.finish(),
        plain.cropped(),
        plain.maps(),
        plain.scores(),
        plain.statistics(),
        Optional.of(scores),
        plain.rollout(),
        plain.timing());
  }

  /** A run of the demo model from the golden values, all of it prompt but the last third. */
  static Generation golden(String name) throws IOException {
    Path folder = TEST_DATA.resolve("golden").resolve(name);
    JsonObject meta = json(folder.resolve("meta.json"));
    List<String> vocabulary = new ArrayList<>();
    JsonObject vocab =
        json(TEST_DATA.resolve("shakespeare/tokenizer.json"))
            .getAsJsonObject("model")
            .getAsJsonObject("vocab");
    String[] byId = new String[1024];
    for (Map.Entry<String, JsonElement> entry : vocab.entrySet()) {
      byId[entry.getValue().getAsInt()] = entry.getKey();
    }
    meta.getAsJsonArray("ids")
        .forEach(id -> vocabulary.add(byId[id.getAsInt()].replace("Ġ", "·").replace("Ċ", "\\n")));
    int t = vocabulary.size();
    int[] layers = {0, 1, 2, 3, 4, 5};
    int[] heads = {0, 1, 2};
    Optional<AttentionMaps> scores =
        Files.exists(folder.resolve("scores.f32"))
            ? Optional.of(squares(folder.resolve("scores.f32"), layers, heads, t))
            : Optional.empty();
    int promptLength = Math.max(1, t * 2 / 3);
    return run(
        tokens(promptLength, vocabulary.toArray(String[]::new)),
        promptLength,
        squares(folder.resolve("attention.f32"), layers, heads, t),
        scores);
  }

  private static AttentionMaps squares(Path file, int[] layers, int[] heads, int t)
      throws IOException {
    FloatBuffer all =
        ByteBuffer.wrap(Files.readAllBytes(file)).order(ByteOrder.LITTLE_ENDIAN).asFloatBuffer();
    AttentionMaps maps = AttentionMaps.allocate(layers, heads, t);
    for (int layer : layers) {
      for (int head : heads) {
        for (int query = 0; query < t; query++) {
          float[] row = new float[t];
          all.get(row);
          maps.put(layer, head, query, row);
        }
      }
    }
    return maps;
  }

  private static JsonObject json(Path file) throws IOException {
    return new Gson().fromJson(Files.readString(file), JsonObject.class);
  }

  /** {@code label 0}, {@code label 1} and so on, with some that are hard to show. */
  static String[] labels(int count) {
    String[] hard = {
      "·king", "€", "\uD83D\uDE00", "\\n", "<script>alert(1)</script>", "</script>", "<E2 82>",
      "·the", "=SUM(A1)", "a\"b", "\uD55C\uAD6D", ",", "·very-long-token-of-many-letters", "<!--"
    };
    String[] labels = new String[count];
    for (int i = 0; i < count; i++) {
      labels[i] = i % 3 == 1 ? hard[i / 3 % hard.length] : "·w" + i;
    }
    return labels;
  }

  private static float[] softmax(float[] scores) {
    double sum = 0;
    for (float score : scores) {
      sum += Math.exp(score);
    }
    float[] weights = new float[scores.length];
    for (int i = 0; i < weights.length; i++) {
      weights[i] = (float) (Math.exp(scores[i]) / sum);
    }
    return weights;
  }
}
