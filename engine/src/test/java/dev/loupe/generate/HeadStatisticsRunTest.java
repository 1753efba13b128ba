package dev.loupe.generate;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.loupe.Backend;
import dev.loupe.Loupe;
import dev.loupe.Options;
import dev.loupe.TinyModel;
import dev.loupe.attention.AttentionMaps;
import dev.loupe.attention.AttentionSelection;
import dev.loupe.attention.HeadScore;
import dev.loupe.attention.HeadStatistics;
import dev.loupe.attention.HeadStatistics.Edge;
import dev.loupe.model.Golden;
import dev.loupe.model.ReferenceGpt2;
import dev.loupe.sampling.Sampling;
import dev.loupe.weights.Checkpoint;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.EnumMap;
import java.util.List;
import java.util.Map;
import java.util.function.IntUnaryOperator;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/**
 * Statistics of heads that went by row by row, against sums over whole maps in double precision.
 */
class HeadStatisticsRunTest {
  private static final String TEXT =
      "ROMEO:\nO, she doth teach the torches to burn bright!\nO, she doth teach the torches";

  private static Path tinyFolder;
  private static Loupe demo;
  private static Loupe tiny;

  @BeforeAll
  static void open(@TempDir Path folder) throws Exception {
    demo = Loupe.open(Golden.DEMO_MODEL, Options.defaults().backend(Backend.CPU).threads(2));
    tinyFolder = TinyModel.in(folder).folder();
    tiny = Loupe.open(tinyFolder, Options.defaults().backend(Backend.CPU).threads(2));
  }

  @AfterAll
  static void close() {
    demo.close();
    tiny.close();
  }

  private static Generation one(Loupe loupe, GenerateRequest request) {
    return loupe.run(request).getFirst();
  }

  private static int[] ids(Generation run) {
    return run.tokens().stream().mapToInt(Token::id).toArray();
  }

  /** What a score is the mean of. */
  private static final class Means {
    private final Map<HeadScore, List<Double>> values = new EnumMap<>(HeadScore.class);

    void add(HeadScore score, double value) {
      values.computeIfAbsent(score, any -> new ArrayList<>()).add(value);
    }

    double of(HeadScore score) {
      return values.getOrDefault(score, List.of()).stream()
          .mapToDouble(Double::doubleValue)
          .average()
          .orElse(Double.NaN);
    }
  }

  /**
   * The definitions, read off a whole map.
   *
   * @param first of each query, the first token that it could read
   */
  private static Means scores(
      AttentionMaps maps, int layer, int head, int[] ids, IntUnaryOperator first) {
    Means means = new Means();
    for (int i = 0; i < ids.length; i++) {
      float[] p = maps.row(layer, head, i);
      int from = first.applyAsInt(i);
      double entropy = 0;
      double distance = 0;
      double same = 0;
      double next = 0;
      boolean again = false;
      for (int j = from; j <= i; j++) {
        entropy -= p[j] > 0 ? p[j] * Math.log(p[j]) : 0;
        distance += p[j] * (i - j);
        if (j < i && ids[j] == ids[i]) {
          again = true;
          same += p[j];
          next += p[j + 1];
        }
      }
      means.add(HeadScore.ENTROPY, entropy);
      means.add(HeadScore.MEAN_DISTANCE, distance);
      if (i > from) {
        means.add(HeadScore.NORMALISED_ENTROPY, entropy / Math.log(i - from + 1));
        means.add(HeadScore.FIRST_TOKEN, p[from]);
        means.add(HeadScore.SELF, p[i]);
        means.add(HeadScore.PREVIOUS_TOKEN, p[i - 1]);
      }
      if (again) {
        means.add(HeadScore.DUPLICATE_TOKEN, same);
        means.add(HeadScore.INDUCTION, next);
      }
    }
    return means;
  }

  /** Statistics are those of the maps of the same run. */
  private static void check(Generation run, IntUnaryOperator first, double tolerance) {
    AttentionMaps maps = run.attention();
    HeadStatistics all = run.headStatistics().orElseThrow();
    assertEquals(run.tokens().size(), all.tokens());
    int checked = 0;
    for (int layer : maps.layers()) {
      for (int head : maps.heads()) {
        Means expected = scores(maps, layer, head, ids(run), first);
        for (HeadScore score : HeadScore.values()) {
          if (!score.needsValueNorms()) {
            double of = expected.of(score);
            double unit = score == HeadScore.MEAN_DISTANCE ? maps.tokens() : 1;
            assertEquals(
                of,
                all.score(score, layer, head),
                tolerance * unit,
                score + " " + layer + "." + head);
            checked += Double.isNaN(of) ? 0 : 1;
          }
        }
        assertEquals(
            edges(maps, layer, head, first, false, all.edges(layer, head, false)),
            all.edges(layer, head, false));
        assertEquals(
            edges(maps, layer, head, first, true, all.edges(layer, head, true)),
            all.edges(layer, head, true));
      }
    }
    assertEquals(8 * maps.layers().length * maps.heads().length, checked);
  }

  private static List<Edge> edges(
      AttentionMaps maps,
      int layer,
      int head,
      IntUnaryOperator first,
      boolean ignoreFirst,
      List<Edge> found) {
    List<Edge> edges = new ArrayList<>();
    for (int i = 0; i < maps.tokens(); i++) {
      float[] p = maps.row(layer, head, i);
      int from = first.applyAsInt(i);
      for (int j = ignoreFirst ? from + 1 : from; i > from && j <= i; j++) {
        edges.add(new Edge(i, j, p[j]));
      }
    }
    edges.sort(Comparator.comparingDouble(Edge::weight).reversed()); // stable: earlier ones first
    assertEquals(HeadStatistics.EDGES, found.size());
    return edges.subList(0, found.size());
  }

  private static AttentionSelection maps() {
    return AttentionSelection.all().withHeadStatistics();
  }

  @Test
  void areThoseOfTheMaps() {
    check(one(demo, GenerateRequest.text(TEXT).tokens(0).attention(maps())), q -> 0, 1e-6);
    check(one(tiny, GenerateRequest.text(TEXT).tokens(0).attention(maps())), q -> 0, 1e-6);
  }

  @Test
  void keepTheirPlacesInTheModel() {
    AttentionSelection some = AttentionSelection.all().layers(1, 5).heads(2);
    GenerateRequest request = GenerateRequest.text(TEXT).tokens(0);
    Generation run = one(demo, request.attention(some.withHeadStatistics()));
    check(run, q -> 0, 1e-6);
    assertThrows(
        IllegalArgumentException.class,
        () -> run.headStatistics().orElseThrow().score(HeadScore.SELF, 1, 0));
  }

  /** Which passes a text was cut into shows in no bit: read at once, or written in a batch. */
  @Test
  void aTextIsTheSameHoweverItCame() {
    AttentionSelection selection = AttentionSelection.all().headStatisticsOnly().withValueNorms();
    for (Generation written :
        demo.run(
            GenerateRequest.text("But soft, what light through yonder window")
                .tokens(30)
                .samples(3)
                .sampling(Sampling.seeded(4))
                .attention(selection))) {
      assertTrue(written.maps().isEmpty() && written.statistics().isEmpty());
      Generation read = one(demo, GenerateRequest.ids(ids(written)).tokens(0).attention(selection));
      HeadStatistics expected = read.headStatistics().orElseThrow();
      HeadStatistics actual = written.headStatistics().orElseThrow();
      for (int layer : expected.layers()) {
        for (int head : expected.heads()) {
          for (HeadScore score : HeadScore.values()) {
            assertEquals(
                expected.score(score, layer, head), actual.score(score, layer, head), score.key());
          }
          assertEquals(expected.edges(layer, head, false), actual.edges(layer, head, false));
          assertEquals(expected.edges(layer, head, true), actual.edges(layer, head, true));
          assertEquals(expected.edgesByNorm(layer, head), actual.edgesByNorm(layer, head));
        }
      }
    }
  }

  @Test
  void aContextThatSlides() {
    GenerateRequest request =
        GenerateRequest.text("ROMEO:")
            .tokens(400)
            .sampling(Sampling.seeded(3))
            .slide(true)
            .attention(AttentionSelection.all().layers(0, 5).withValueNorms());
    Generation run = one(demo, request);
    assertEquals(256, run.cropped());
    check(run, q -> q < 256 ? 0 : q < 384 ? 128 : 256, 1e-6);
    assertTrue(run.headStatistics().orElseThrow().score(HeadScore.WEIGHTED_NORM, 5, 1) > 0);
  }

  /** Against |P[i, j] v[j] W_O| written out, of a float64 pass of its own. */
  @Test
  void normsAreThoseOfTheVectors() throws Exception {
    norms(demo, Golden.DEMO_MODEL, TEXT);
    norms(tiny, tinyFolder, "But soft");
  }

  private static void norms(Loupe loupe, Path model, String text) throws Exception {
    GenerateRequest request = GenerateRequest.text(text).tokens(0);
    Generation run = one(loupe, request.attention(AttentionSelection.all().withValueNorms()));
    HeadStatistics all = run.headStatistics().orElseThrow();
    int[] ids = ids(run);
    try (Checkpoint checkpoint = Checkpoint.open(model)) {
      ReferenceGpt2 reference = new ReferenceGpt2(checkpoint, ids);
      int c = checkpoint.config().nEmbd();
      int d = checkpoint.config().headDim();
      for (int layer : all.layers()) {
        float[] cProj = new float[c * c];
        checkpoint.tensor("h." + layer + ".attn.c_proj.weight").read(0, cProj, 0, cProj.length);
        for (int head : all.heads()) {
          double mean = 0;
          double byNorm = 0;
          Edge most = new Edge(0, 0, 0);
          for (int i = 0; i < ids.length; i++) {
            double sum = 0;
            double toFirst = 0;
            for (int j = 0; j <= i; j++) {
              double square = 0;
              for (int k = 0; k < c; k++) {
                double written = 0;
                for (int e = head * d; e < (head + 1) * d; e++) {
                  written += reference.values[layer][j][e] * cProj[e * c + k];
                }
                written *= reference.attention[layer][head][i][j];
                square += written * written;
              }
              double norm = Math.sqrt(square);
              sum += norm;
              toFirst = j == 0 ? norm : toFirst;
              most = i > 0 && norm > most.weight() ? new Edge(i, j, (float) norm) : most;
            }
            mean += sum / ids.length;
            byNorm += i == 0 ? 0 : toFirst / sum / (ids.length - 1);
          }
          String where = layer + "." + head;
          assertEquals(mean, all.score(HeadScore.WEIGHTED_NORM, layer, head), 1e-5 * mean, where);
          assertEquals(byNorm, all.score(HeadScore.FIRST_TOKEN_BY_NORM, layer, head), 1e-5, where);
          Edge found = all.edgesByNorm(layer, head).getFirst();
          assertEquals(most.weight(), found.weight(), 1e-5 * most.weight(), where);
        }
      }
    }
  }

  @Test
  void rolloutIsTheProductOfTheLayers() {
    GenerateRequest request =
        GenerateRequest.text("To be, or not").tokens(9).sampling(Sampling.seeded(2));
    Generation run = one(demo, request.attention(AttentionSelection.all().withRollout()));
    AttentionMaps maps = run.attention();
    int t = run.tokens().size();
    double[][] product = new double[t][t];
    for (int i = 0; i < t; i++) {
      product[i][i] = 1;
    }
    for (int layer : maps.layers()) {
      double[][] next = new double[t][t];
      for (int i = 0; i < t; i++) {
        for (int head : maps.heads()) {
          float[] p = maps.row(layer, head, i);
          for (int j = 0; j <= i; j++) {
            double part = 0.5 * p[j] / maps.heads().length + (i == j ? 0.5 / 3 : 0);
            for (int k = 0; k < t; k++) {
              next[i][k] += part * product[j][k];
            }
          }
        }
      }
      product = next;
    }
    for (int i = 0; i < t; i++) {
      float[] row = run.rollout().orElseThrow().row(i);
      double sum = 0;
      for (int k = 0; k <= i; k++) {
        assertEquals(product[i][k], row[k], 1e-6);
        sum += row[k];
      }
      assertEquals(1, sum, 1e-5);
    }
    GenerateRequest some = request.attention(AttentionSelection.all().heads(1).withRollout());
    assertThrows(IllegalArgumentException.class, () -> demo.run(some));
  }

  @Test
  void mapsAsideOrNot() {
    GenerateRequest request = GenerateRequest.text(TEXT).tokens(0);
    Generation with = one(demo, request.attention(maps()));
    Generation only = one(demo, request.attention(AttentionSelection.all().headStatisticsOnly()));
    assertTrue(only.maps().isEmpty());
    assertEquals(
        with.headStatistics().orElseThrow().score(HeadScore.INDUCTION, 5, 0),
        only.headStatistics().orElseThrow().score(HeadScore.INDUCTION, 5, 0));
    assertThrows(IllegalArgumentException.class, () -> AttentionSelection.all().repeated(0));
  }
}
