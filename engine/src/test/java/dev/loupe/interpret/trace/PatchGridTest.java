package dev.loupe.interpret.trace;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.loupe.Backend;
import dev.loupe.Loupe;
import dev.loupe.OnGpu;
import dev.loupe.Options;
import dev.loupe.TinyModel;
import dev.loupe.generate.Prompt;
import dev.loupe.interpret.trace.PatchGrid.Row;
import dev.loupe.model.Golden;
import dev.loupe.weights.Checkpoint;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CancellationException;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Every cell of a grid, against float64 that has it patched. */
class PatchGridTest {
  private static final double NEAR = 5e-4;
  private static final int[] IDS = {1023, 45, 300, 17, 401, 45, 300};
  private static final int[] OTHER = {1023, 45, 301, 17, 400, 45, 300};

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

  private static TraceRequest request() {
    return TraceRequest.of(Prompt.ids(IDS)).target(17).patch(Prompt.ids(OTHER));
  }

  private static void agrees(PatchGrid grid, int rows) throws Exception {
    assertEquals(rows, grid.rows().size());
    int seen = 0;
    try (Checkpoint checkpoint = Checkpoint.open(Golden.DEMO_MODEL)) {
      Textbook book = new Textbook(checkpoint, IDS, OTHER, grid.quantity());
      assertEquals(book.value(), grid.value(), NEAR);
      assertEquals(book.otherValue(), grid.otherValue(), NEAR);
      for (Row row : grid.rows()) {
        assertEquals(List.of(0.0, 0.0), row.effects().subList(0, 2)); // the texts begin alike
        for (int t = 2; t < IDS.length; t++) {
          double expected = book.cell(row, t);
          assertEquals(expected, row.effects().get(t), NEAR, row.label() + " at " + t);
          seen += Math.abs(expected) > 0.01 ? 1 : 0;
        }
      }
    }
    assertTrue(seen > 3, "no effects");
  }

  @Test
  void layersAreTheTextbooks() throws Exception {
    agrees(loupe.patch(request(), PatchGrid.Kind.LAYERS), 18);
  }

  @Test
  void headsAreTheTextbooks() throws Exception {
    agrees(loupe.patch(request(), PatchGrid.Kind.HEADS), 18);
  }

  @Test
  void theInputsOfAHeadAreTheTextbooks() throws Exception {
    agrees(loupe.patch(request(), new Part(3, 2)), 4);
  }

  @Test
  void theWholeSecondTextIsItsValue() {
    PatchGrid grid = loupe.patch(request(), PatchGrid.Kind.LAYERS);
    Row last = grid.rows().get(15);
    assertEquals("residual 5", last.label());
    assertTrue(grid.value() != grid.otherValue());
  }

  @Test
  void progressAndItsEnd() {
    List<Long> done = new ArrayList<>();
    long[] of = new long[1];
    loupe.patch(
        request()
            .listener(
                (phase, rows, total) -> {
                  assertEquals(TraceListener.Phase.GRID, phase);
                  done.add(rows);
                  of[0] = total;
                  return true;
                }),
        PatchGrid.Kind.LAYERS);
    assertEquals(done.stream().sorted().toList(), done);
    assertEquals(of[0], done.getLast()); // known before to the row
    assertThrows(
        CancellationException.class,
        () -> loupe.patch(request().listener((a, b, c) -> b < 50), PatchGrid.Kind.HEADS));
  }

  @Test
  void whatIsNotThereIsSaid() {
    assertEquals(
        "there is no second text to patch from",
        assertThrows(
                IllegalArgumentException.class,
                () -> loupe.patch(TraceRequest.of(Prompt.ids(IDS)), PatchGrid.Kind.HEADS))
            .getMessage());
    assertEquals(
        "there is no head 6.0: the model has layers 0..5 of heads 0..2",
        assertThrows(IllegalArgumentException.class, () -> loupe.patch(request(), new Part(6, 0)))
            .getMessage());
  }

  @OnGpu
  @Test
  void theGpuPatchesTheSame() throws Exception {
    Path tiny = TinyModel.in(folder).folder();
    try (Loupe cpu = Loupe.open(tiny, Options.defaults().backend(Backend.CPU).threads(2));
        Loupe gpu = Loupe.open(tiny, Options.defaults().backend(Backend.CUDA))) {
      PatchGrid expected = cpu.patch(request(), PatchGrid.Kind.LAYERS);
      PatchGrid grid = gpu.patch(request(), PatchGrid.Kind.LAYERS);
      for (int i = 0; i < grid.rows().size(); i++) {
        for (int t = 0; t < IDS.length; t++) {
          assertEquals(
              expected.rows().get(i).effects().get(t), grid.rows().get(i).effects().get(t), NEAR);
        }
      }
    }
  }
}
