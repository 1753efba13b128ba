package dev.loupe.cuda.kernels;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import dev.loupe.cuda.DeviceBuffer;
import dev.loupe.cuda.Gpu;
import dev.loupe.cuda.driver.Element;
import dev.loupe.cuda.emulator.Emulator;
import dev.loupe.cuda.emulator.OnDevice;
import dev.loupe.cuda.emulator.RoundingTo;
import java.util.Random;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.Parameter;
import org.junit.jupiter.params.ParameterizedClass;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.EnumSource;

@OnDevice
@ParameterizedClass
@EnumSource(Serving.class)
class EmbeddingKernelsTest {
  private static final int VOCABULARY = 61;
  private static final int PLACES = 35;

  private static Gpu gpu;

  @BeforeAll
  static void open() {
    gpu = Emulator.open();
  }

  @AfterAll
  static void close() {
    gpu.close();
  }

  @Parameter Serving serving = Serving.BEST;

  @BeforeEach
  void choose() {
    gpu.use(serving);
  }

  @ParameterizedTest
  @CsvSource({"F32,F32", "F16,F16", "BF16,BF16", "F16,F32", "BF16,F32"})
  void isTheSumOfTwoRowsToTheLastBit(Element table, Element out) {
    for (int width : new int[] {1, 7, 8, 65, 768}) {
      for (int rows : new int[] {1, 33, 200}) {
        assertSum(table, out, rows, width);
      }
    }
  }

  private static void assertSum(Element table, Element out, int rows, int width) {
    Random random = new Random(width);
    float[] wte = RoundingTo.nearest(table, gaussian(random, VOCABULARY * width));
    float[] wpe = RoundingTo.nearest(table, gaussian(random, PLACES * width));
    int[] ids = random.ints(rows, 0, VOCABULARY).toArray();
    int[] positions = random.ints(rows, 0, PLACES).toArray();
    ids[rows - 1] = VOCABULARY - 1;
    positions[0] = PLACES - 1;

    float[] expected = new float[rows * width];
    for (int i = 0; i < expected.length; i++) {
      int r = i / width;
      int c = i % width;
      expected[i] =
          RoundingTo.nearest(out, wte[ids[r] * width + c] + wpe[positions[r] * width + c]);
    }
    assertArrayEquals(
        expected,
        embed(table, out, ids, positions, wte, wpe, width),
        "%s to %s, R = %d, C = %d".formatted(table, out, rows, width));
  }

  @Test
  void anIdOrPositionOutOfRangeGivesNaNAndNothingElseDoes() {
    for (int width : new int[] {7, 16}) {
      int[] ids = {0, -1, VOCABULARY, 5, 5, Integer.MIN_VALUE, VOCABULARY - 1};
      int[] positions = {0, 1, 1, PLACES, -1, Integer.MAX_VALUE, PLACES - 1};
      float[] x =
          embed(
              Element.F32,
              Element.F32,
              ids,
              positions,
              new float[VOCABULARY * width],
              new float[PLACES * width],
              width);
      for (int i = 0; i < x.length; i++) {
        int row = i / width;
        assertEquals(row != 0 && row != 6, Float.isNaN(x[i]), "row " + row);
      }
    }
  }

  private static float[] embed(
      Element table, Element out, int[] ids, int[] positions, float[] wte, float[] wpe, int width) {
    int rows = ids.length;
    float[] got = new float[rows * width];
    try (DeviceBuffer dIds = gpu.allocate(Element.I32, rows);
        DeviceBuffer dPositions = gpu.allocate(Element.I32, rows);
        DeviceBuffer dWte = gpu.allocate(table, wte.length);
        DeviceBuffer dWpe = gpu.allocate(table, wpe.length);
        DeviceBuffer x = gpu.allocate(out, got.length)) {
      dIds.upload(ids);
      dPositions.upload(positions);
      dWte.upload(wte);
      dWpe.upload(wpe);
      x.fill((byte) 0xff);
      new EmbeddingKernels(gpu)
          .embed(dIds, dPositions, dWte, dWpe, x, rows, VOCABULARY, PLACES, width);
      x.download(got);
    }
    return got;
  }

  @Test
  void refusesWhatDoesNotFit() {
    DeviceBuffer closed = gpu.allocate(Element.F16, 32);
    closed.close();
    try (DeviceBuffer ids = gpu.allocate(Element.I32, 4);
        DeviceBuffer wte = gpu.allocate(Element.F16, 80);
        DeviceBuffer wpe = gpu.allocate(Element.F16, 32);
        DeviceBuffer x = gpu.allocate(Element.F16, 32);
        DeviceBuffer other = gpu.allocate(Element.BF16, 80)) {
      EmbeddingKernels kernels = new EmbeddingKernels(gpu);
      kernels.embed(ids, ids, wte, wpe, x, 4, 10, 4, 8);
      assertRefused(
          "embedding: wte has 80 elements, needs 88",
          () -> kernels.embed(ids, ids, wte, wpe, x, 4, 11, 4, 8));
      assertRefused(
          "embedding: wpe has 32 elements, needs 40",
          () -> kernels.embed(ids, ids, wte, wpe, x, 4, 10, 5, 8));
      assertRefused(
          "embedding: ids has 4 elements, needs 5",
          () -> kernels.embed(ids, ids, wte, wpe, x, 5, 10, 4, 8));
      assertRefused(
          "embedding: wpe holds BF16, not F16",
          () -> kernels.embed(ids, ids, wte, other, x, 4, 10, 4, 8));
      assertRefused(
          "embedding: no kernel from F16 tables to BF16",
          () -> kernels.embed(ids, ids, wte, wpe, other, 4, 10, 4, 8));
      assertRefused(
          "embedding: rows is 0, not between 1 and 2147483647",
          () -> kernels.embed(ids, ids, wte, wpe, x, 0, 10, 4, 8));
      assertRefused(
          "embedding: x is closed", () -> kernels.embed(ids, ids, wte, wpe, closed, 4, 10, 4, 8));
    }
  }

  private static void assertRefused(String message, Runnable call) {
    assertEquals(message, assertThrows(IllegalArgumentException.class, call::run).getMessage());
  }

  private static float[] gaussian(Random random, int n) {
    float[] x = new float[n];
    for (int i = 0; i < n; i++) {
      x[i] = (float) random.nextGaussian();
    }
    return x;
  }
}
