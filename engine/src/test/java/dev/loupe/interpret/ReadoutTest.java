package dev.loupe.interpret;

import static dev.loupe.Close.assertClose;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.loupe.Backend;
import dev.loupe.Loupe;
import dev.loupe.OnGpu;
import dev.loupe.Options;
import dev.loupe.TinyModel;
import dev.loupe.generate.ReadListener;
import dev.loupe.generate.ReadRequest;
import dev.loupe.model.Golden;
import dev.loupe.model.Interventions;
import dev.loupe.model.ReferenceGpt2;
import dev.loupe.ops.Mask;
import dev.loupe.ops.Precision;
import dev.loupe.sampling.NotFiniteException;
import dev.loupe.weights.Checkpoint;
import java.io.IOException;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.CancellationException;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** The residual stream and the logits, against float64. */
class ReadoutTest {
  private static final int[] IDS = {
    5, 300, 17, 17, 0, 331, 5, 300, 9, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17,
    18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29
  }; // more than are made at a time

  @TempDir Path folder;

  /** What was handed over, in order. */
  private static final class Taken implements Readout.Rows {
    final List<int[]> places = new ArrayList<>();
    final List<float[]> rows = new ArrayList<>();

    @Override
    public void row(int layers, int token, float[] values) {
      places.add(new int[] {layers, token});
      rows.add(values.clone());
    }

    float[] flat() {
      float[] flat = new float[rows.stream().mapToInt(row -> row.length).sum()];
      int at = 0;
      for (float[] row : rows) {
        System.arraycopy(row, 0, flat, at, row.length);
        at += row.length;
      }
      return flat;
    }
  }

  private static double[] flat(double[][] rows, int... tokens) {
    return Arrays.stream(tokens).mapToObj(t -> rows[t]).flatMapToDouble(Arrays::stream).toArray();
  }

  /** ln_f in float64, by the head: the logits are its products, so only its own numbers count. */
  private static double[][] normed(Checkpoint checkpoint, double[][] x) {
    int width = x[0].length;
    float[] weight = new float[width];
    float[] bias = new float[width];
    checkpoint.tensor("ln_f.weight").read(0, weight, 0, width);
    checkpoint.tensor("ln_f.bias").read(0, bias, 0, width);
    double[][] out = new double[x.length][width];
    for (int t = 0; t < x.length; t++) {
      double mean = Arrays.stream(x[t]).average().orElseThrow();
      double variance =
          Arrays.stream(x[t]).map(v -> (v - mean) * (v - mean)).average().orElseThrow();
      for (int c = 0; c < width; c++) {
        double unit =
            (x[t][c] - mean) / Math.sqrt(variance + checkpoint.config().layerNormEpsilon());
        out[t][c] = unit * weight[c] + bias[c];
      }
    }
    return out;
  }

  private static void check(
      Loupe loupe,
      ReadRequest request,
      ReferenceGpt2 reference,
      Checkpoint checkpoint,
      int... tokens)
      throws IOException {
    int layers = loupe.info().config().nLayer();
    try (Readout readout = loupe.readout(request)) {
      for (int again = 0; again < 2; again++) {
        Taken logits = new Taken();
        readout.logits(tokens, logits);
        assertClose("logits", flat(reference.logits, tokens), logits.flat(), 2e-4);
        Taken residual = new Taken();
        readout.residual(tokens, residual);
        assertEquals((layers + 1) * tokens.length, residual.rows.size());
        int at = 0;
        for (int layer = 0; layer <= layers; layer++) {
          for (int token : tokens) {
            assertArrayEquals(new int[] {layer, token}, residual.places.get(at));
            assertClose("residual", reference.hidden[layer][token], residual.rows.get(at++), 1e-4);
          }
        }
        Taken last = new Taken();
        readout.finalNorm(tokens, last);
        double[][] normed = normed(checkpoint, reference.hidden[layers]);
        assertClose("final", flat(normed, tokens), last.flat(), 1e-4);
      }
    }
  }

  private void agreesWithFloat64(Backend backend) throws Exception {
    TinyModel.ofIds(folder);
    int[] all = new int[IDS.length];
    Arrays.setAll(all, i -> i);
    int[] some = {0, 3, 4, 5, 36, 37};
    Options options = Options.defaults().backend(backend).threads(2);
    try (Loupe loupe = Loupe.open(folder, options);
        Checkpoint checkpoint = Checkpoint.open(folder)) {
      ReferenceGpt2 reference = new ReferenceGpt2(checkpoint, IDS);
      check(loupe, ReadRequest.ids(IDS), reference, checkpoint, all);
      check(loupe, ReadRequest.ids(IDS), reference, checkpoint, some);
      check(loupe, ReadRequest.ids(5), new ReferenceGpt2(checkpoint, new int[] {5}), checkpoint, 0);
      ReferenceGpt2 ablated =
          new ReferenceGpt2(
              checkpoint,
              checkpoint.config(),
              IDS,
              (layer, heads) -> {
                if (layer == 1) {
                  Arrays.stream(heads).forEach(row -> Arrays.fill(row, 24, 48, 0));
                }
              });
      ReadRequest changed = ReadRequest.ids(IDS).interventions(Interventions.NONE.scale(1, 1, 0));
      check(loupe, changed, ablated, checkpoint, some);
      ReferenceGpt2 full =
          new ReferenceGpt2(checkpoint, checkpoint.config(), IDS, (layer, heads) -> {}, false);
      check(loupe, ReadRequest.ids(IDS).mask(Mask.FULL), full, checkpoint, some);
    }
  }

  @Test
  void onTheCpu() throws Exception {
    agreesWithFloat64(Backend.CPU);
  }

  @OnGpu
  @Test
  void onTheGpu() throws Exception {
    agreesWithFloat64(Backend.CUDA);
  }

  @OnGpu
  @ParameterizedTest
  @ValueSource(strings = {"F16", "BF16", "INT8"})
  void onTheGpuInFewerBits(Precision precision) throws Exception {
    TinyModel.ofIds(folder);
    Options options = Options.defaults().backend(Backend.CUDA).precision(precision);
    try (Loupe loupe = Loupe.open(folder, options);
        Checkpoint checkpoint = Checkpoint.open(folder);
        Readout readout = loupe.readout(ReadRequest.ids(IDS))) {
      ReferenceGpt2 reference = new ReferenceGpt2(checkpoint, IDS);
      Taken last = new Taken();
      readout.residual(new int[] {37}, last);
      assertClose("residual", reference.hidden[3][37], last.rows.getLast(), 2e-2);
      readout.finalNorm(new int[] {37}, last);
      double[][] normed = normed(checkpoint, reference.hidden[3]);
      assertClose("final", normed[37], last.rows.getLast(), 0.3);
    }
  }

  @ParameterizedTest
  @ValueSource(strings = {"romeo", "repeat", "one", "t33", "t65"})
  void theDemoModelIsTheGoldenOne(String name) throws Exception {
    Golden golden = Golden.of(name);
    int[] rows = golden.ints("rows");
    try (Loupe loupe = Loupe.open(Golden.DEMO_MODEL, Options.defaults().backend(Backend.CPU));
        Readout readout = loupe.readout(ReadRequest.ids(golden.ids()))) {
      Taken logits = new Taken();
      readout.logits(rows, logits);
      assertClose(name + " logits", golden.floats("logits"), logits.flat(), 2e-4);
      if (golden.has("hidden")) {
        Taken residual = new Taken();
        readout.residual(readout.all(), residual);
        assertClose(name + " hidden", golden.floats("hidden"), residual.flat(), 1e-4);
      }
    }
  }

  @Test
  void whatIsNotThereAndWhoeverHasEnough() throws Exception {
    TinyModel model = TinyModel.ofIds(folder);
    try (Loupe loupe = Loupe.open(folder, Options.defaults().backend(Backend.CPU))) {
      assertThrows(
          IllegalArgumentException.class, () -> loupe.readout(ReadRequest.ids(new int[41])));
      try (Readout readout = loupe.readout(ReadRequest.ids(IDS))) {
        for (int[] wrong : new int[][] {{-1}, {38}, {3, 3}, {4, 3}}) {
          assertThrows(IllegalArgumentException.class, () -> readout.residual(wrong, new Taken()));
          assertThrows(IllegalArgumentException.class, () -> readout.logits(wrong, new Taken()));
        }
        IOException full = new IOException("full");
        Readout.Rows broken =
            (layers, token, values) -> {
              throw full;
            };
        for (int i = 0; i < 2; i++) {
          assertEquals(
              full, assertThrows(IOException.class, () -> readout.residual(IDS_0, broken)));
          assertEquals(full, assertThrows(IOException.class, () -> readout.logits(IDS_0, broken)));
        }
      }
      ReadListener enough =
          new ReadListener() {
            @Override
            public boolean reading(int layersDone, int layers) {
              return layersDone < 2;
            }
          };
      try (Readout readout = loupe.readout(ReadRequest.ids(IDS).listener(enough))) {
        Taken taken = new Taken();
        assertThrows(CancellationException.class, () -> readout.residual(IDS_0, taken));
        assertEquals(2, taken.rows.size());
      }
    }
    model.poke("wte.weight", 300 * 48 + 5, Float.NaN);
    try (Loupe loupe = Loupe.open(folder, Options.defaults().backend(Backend.CPU));
        Readout readout = loupe.readout(ReadRequest.ids(IDS))) {
      Throwable nan =
          assertThrows(
              NotFiniteException.class, () -> readout.residual(readout.all(), new Taken()));
      assertTrue(String.valueOf(nan.getMessage()).contains("wte.weight"));
    }
  }

  private static final int[] IDS_0 = {0};
}
