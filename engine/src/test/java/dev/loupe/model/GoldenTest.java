package dev.loupe.model;

import static dev.loupe.Close.assertClose;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;

import dev.loupe.ops.cpu.CpuOps;
import dev.loupe.weights.Checkpoint;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;

/** The demo model against values from an independent float64 implementation. */
class GoldenTest {
  /** Of f32 sums of a few hundred products through six layers; see ARCHITECTURE's numerics. */
  private static final double LOGITS = 2e-4;

  private static final double PROBABILITIES = 1e-5;

  /** With maps, by prompt and passes; several tests look at each. */
  private static final Map<List<?>, Forward> FORWARDS = new HashMap<>();

  private static Checkpoint checkpoint;
  private static CpuOps ops;
  private static Transformer model;

  @BeforeAll
  static void open() throws Exception {
    checkpoint = Checkpoint.open(Golden.DEMO_MODEL);
    ops = new CpuOps(2);
    model = new Transformer(checkpoint, ops);
  }

  @AfterAll
  static void close() {
    FORWARDS.clear();
    model.close();
    ops.close();
    checkpoint.close();
  }

  private static Forward mapped(Golden golden, int[] passes) {
    return FORWARDS.computeIfAbsent(
        List.of(golden.toString(), Arrays.toString(passes)),
        _ -> new Forward(model, golden.ids(), passes, true));
  }

  static List<Golden> prompts() {
    return Golden.all();
  }

  @ParameterizedTest
  @MethodSource("prompts")
  void wholePromptInOnePass(Golden golden) {
    check(golden, Forward.whole(golden.ids().length));
  }

  @ParameterizedTest
  @MethodSource("prompts")
  void tokenByToken(Golden golden) {
    check(golden, Forward.single(golden.ids().length));
  }

  @ParameterizedTest
  @MethodSource("prompts")
  void prefillThenDecode(Golden golden) {
    check(golden, Forward.prefillAndDecode(golden.ids().length));
  }

  private static void check(Golden golden, int[] passes) {
    int[] ids = golden.ids();
    Forward actual = mapped(golden, passes);
    int[] rows = golden.ints("rows");
    int t = ids.length;
    int v = model.config().vocabSize();
    float[] logits = new float[rows.length * v];
    for (int r = 0; r < rows.length; r++) {
      System.arraycopy(actual.logits[rows[r]], 0, logits, r * v, v);
    }
    assertClose(golden + " logits", golden.floats("logits"), logits, LOGITS);
    assertClose(
        golden + " attention",
        golden.floats("attention"),
        square(actual.attention, rows, t),
        PROBABILITIES);
    rowsSumToOne(actual);
    if (golden.has("hidden")) {
      int[] all = golden.ints("rows");
      assertEquals(t, all.length, "short prompts keep all rows");
      assertClose(golden + " scores", golden.floats("scores"), square(actual.scores, all, t), 2e-5);
      int c = model.config().nEmbd();
      float[] hidden = new float[actual.hidden.length * t * c];
      for (int l = 0; l < actual.hidden.length; l++) {
        for (int i = 0; i < t; i++) {
          System.arraycopy(actual.hidden[l][i], 0, hidden, (l * t + i) * c, c);
        }
      }
      assertClose(golden + " hidden", golden.floats("hidden"), hidden, 1e-4);
    }
  }

  /** [L, H, rows, T] with zeros above the diagonal. */
  private static float[] square(float[][][][] maps, int[] rows, int t) {
    float[] square = new float[maps.length * maps[0].length * rows.length * t];
    int at = 0;
    for (float[][][] layer : maps) {
      for (float[][] head : layer) {
        for (int row : rows) {
          assertEquals(row + 1, head[row].length, "a row holds the keys up to its query");
          System.arraycopy(head[row], 0, square, at, row + 1);
          at += t;
        }
      }
    }
    return square;
  }

  private static void rowsSumToOne(Forward forward) {
    for (float[][][] layer : forward.attention) {
      for (float[][] head : layer) {
        for (float[] row : head) {
          double sum = 0;
          for (float p : row) {
            sum += p;
          }
          assertEquals(1, sum, 1e-5, "sum of an attention row");
        }
      }
    }
  }

  @ParameterizedTest
  @MethodSource("prompts")
  void referenceAgreesWithGoldenAndEngine(Golden golden) {
    int[] ids = golden.ids();
    ReferenceGpt2 reference = new ReferenceGpt2(checkpoint, ids);
    Forward actual = mapped(golden, Forward.whole(ids.length));
    int[] rows = golden.ints("rows");
    int v = model.config().vocabSize();
    float[] expected = golden.floats("logits");
    for (int r = 0; r < rows.length; r++) {
      float[] file = Arrays.copyOfRange(expected, r * v, (r + 1) * v);
      assertClose(golden + " reference, file", reference.logits[rows[r]], file, 1e-5);
    }
    assertClose(
        golden + " reference, engine",
        Arrays.stream(reference.logits).flatMapToDouble(Arrays::stream).toArray(),
        flat(actual.logits),
        LOGITS);
  }

  /** A row's result depends on that row's inputs alone, so the passes make no difference at all. */
  @ParameterizedTest
  @MethodSource("prompts")
  void bitsDoNotDependOnThePasses(Golden golden) {
    int[] ids = golden.ids();
    Forward whole = mapped(golden, Forward.whole(ids.length));
    Forward single = mapped(golden, Forward.single(ids.length));
    assertArrayEquals(flat(whole.logits), flat(single.logits));
    int[] rows = new int[ids.length];
    Arrays.setAll(rows, i -> i);
    assertArrayEquals(
        square(whole.attention, rows, ids.length), square(single.attention, rows, ids.length));
  }

  @ParameterizedTest
  @MethodSource("prompts")
  void bitsDoNotDependOnMaps(Golden golden) {
    int[] ids = golden.ids();
    int[] passes = Forward.prefillAndDecode(ids.length);
    Forward with = mapped(golden, passes);
    Forward without = new Forward(model, ids, passes, false);
    assertArrayEquals(flat(with.logits), flat(without.logits));
  }

  private static float[] flat(float[][] rows) {
    float[] flat = new float[rows.length * rows[0].length];
    for (int r = 0; r < rows.length; r++) {
      System.arraycopy(rows[r], 0, flat, r * rows[0].length, rows[0].length);
    }
    return flat;
  }
}
