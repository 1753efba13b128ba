package dev.loupe.interpret;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import dev.loupe.Backend;
import dev.loupe.Loupe;
import dev.loupe.OnGpu;
import dev.loupe.Options;
import dev.loupe.TinyModel;
import dev.loupe.generate.Prompt;
import dev.loupe.model.Golden;
import dev.loupe.model.ReferenceGpt2;
import dev.loupe.weights.Checkpoint;
import java.nio.file.Path;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** The numbers behind a row, against float64 and the lens. */
class RowNumbersTest {
  @TempDir Path folder;

  @ParameterizedTest
  @CsvSource({"repeat, 4, 0, 20", "romeo, 0, 2, 0", "t65, 5, 1, 64"})
  void theyAreTheTextbooks(String prompt, int layer, int head, int query) throws Exception {
    int[] ids = Golden.of(prompt).ids();
    Options options = Options.defaults().backend(Backend.CPU).threads(2);
    try (Loupe loupe = Loupe.open(Golden.DEMO_MODEL, options);
        Checkpoint checkpoint = Checkpoint.open(Golden.DEMO_MODEL)) {
      RowNumbers row = loupe.row(Prompt.ids(ids), layer, head, query, -1);
      ReferenceGpt2 book = new ReferenceGpt2(checkpoint, ids);
      assertEquals(query + 1, row.keys().size());
      double direct = 0;
      for (RowNumbers.Key key : row.keys()) {
        int at = key.position();
        assertEquals(book.scores[layer][head][query][at], key.score(), 1e-3);
        assertEquals(book.attention[layer][head][query][at], key.weight(), 1e-5);
        double products = key.products().stream().mapToDouble(v -> v).sum();
        assertEquals(key.score(), row.scale() * products, 1e-9);
        double norm = 0;
        for (int d = 0; d < 64; d++) {
          norm += Math.pow(book.values[layer][at][head * 64 + d], 2);
        }
        assertEquals(Math.sqrt(norm), key.valueNorm(), 1e-3);
        direct += key.direct();
      }
      assertEquals(row.direct(), direct, 1e-9);
      for (int d = 0; d < 64; d++) {
        assertEquals(book.heads[layer][query][head * 64 + d], row.output().get(d), 1e-4);
      }
      Lens lens = loupe.lens(Prompt.ids(ids), query, -1, 0);
      assertEquals(lens.target(), row.target());
      assertEquals(lens.heads().get(layer).get(head), row.direct(), 1e-4);
    }
  }

  @Test
  void whatIsNotThereIsSaid() throws Exception {
    try (Loupe loupe = Loupe.open(Golden.DEMO_MODEL, Options.defaults().threads(1))) {
      Prompt prompt = Prompt.ids(1, 2, 3);
      refused("no token 3: the text has tokens 0..2", () -> loupe.row(prompt, 0, 0, 3, -1));
      refused(
          "there is no head 6.0: the model has layers 0..5 of heads 0..2",
          () -> loupe.row(prompt, 6, 0, 1, -1));
      refused(
          "token id 1024 is outside the vocabulary 0..1023",
          () -> loupe.row(prompt, 0, 0, 1, 1024));
    }
  }

  private static void refused(String message, org.junit.jupiter.api.function.Executable call) {
    assertEquals(message, assertThrows(IllegalArgumentException.class, call).getMessage());
  }

  @OnGpu
  @Test
  void theGpuHasTheSame() throws Exception {
    Path tiny = TinyModel.in(folder).folder();
    Prompt prompt = Prompt.text("To be or not to be");
    try (Loupe cpu = Loupe.open(tiny, Options.defaults().backend(Backend.CPU).threads(2));
        Loupe gpu = Loupe.open(tiny, Options.defaults().backend(Backend.CUDA))) {
      RowNumbers expected = cpu.row(prompt, 1, 1, 4, 7);
      RowNumbers row = gpu.row(prompt, 1, 1, 4, 7);
      assertEquals(expected.direct(), row.direct(), 1e-4);
      for (int i = 0; i < row.keys().size(); i++) {
        assertEquals(expected.keys().get(i).weight(), row.keys().get(i).weight(), 1e-5);
        assertEquals(expected.keys().get(i).score(), row.keys().get(i).score(), 1e-4);
      }
    }
  }
}
