package dev.loupe.cli.run;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.google.gson.JsonObject;
import dev.loupe.Close;
import dev.loupe.TinyModel;
import dev.loupe.cli.Ran;
import dev.loupe.cli.terminal.ExitCode;
import dev.loupe.export.Npz;
import dev.loupe.model.ReferenceGpt2;
import dev.loupe.weights.Checkpoint;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.List;
import java.util.stream.IntStream;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** --logits, --hidden and --rows. */
class ReadoutFilesTest {
  private static final String IDS = "5,300,17,17,0,331,5,300";

  @TempDir Path folder;
  private Path model;
  private Path made;

  @BeforeEach
  void make() throws IOException {
    model = TinyModel.ofIds(folder.resolve("model")).folder();
    made = Files.createDirectory(folder.resolve("made"));
  }

  private Ran loupe(String command, Object... more) {
    Object[] all = new Object[more.length + 5];
    System.arraycopy(new Object[] {command, "-m", model, "--ids", IDS}, 0, all, 0, 5);
    System.arraycopy(more, 0, all, 5, more.length);
    return Ran.loupe(all);
  }

  private static double[] flat(double[][] rows, int... chosen) {
    return Arrays.stream(chosen).mapToObj(t -> rows[t]).flatMapToDouble(Arrays::stream).toArray();
  }

  private void check(Path logitsFile, Path hiddenFile, int[] ids, int... rows) throws IOException {
    Npz logits = Npz.read(logitsFile);
    Npz hidden = Npz.read(hiddenFile);
    assertEquals("<f4 [%d, 333]".formatted(rows.length), logits.get("logits").kind());
    assertEquals("<f4 [4, %d, 48]".formatted(rows.length), hidden.get("hidden").kind());
    assertEquals("<f4 [%d, 48]".formatted(rows.length), hidden.get("final").kind());
    for (Npz npz : List.of(logits, hidden)) {
      int[] which = new int[rows.length];
      npz.get("rows").data().asIntBuffer().get(which);
      assertArrayEquals(rows, which);
      long[] tokens = new long[ids.length];
      npz.get("token_ids").data().asLongBuffer().get(tokens);
      assertArrayEquals(IntStream.of(ids).asLongStream().toArray(), tokens);
    }
    try (Checkpoint checkpoint = Checkpoint.open(model)) {
      ReferenceGpt2 reference = new ReferenceGpt2(checkpoint, ids);
      Close.assertClose(
          "logits", flat(reference.logits, rows), logits.get("logits").floats(), 2e-4);
      double[] layers =
          Arrays.stream(reference.hidden)
              .flatMapToDouble(layer -> Arrays.stream(flat(layer, rows)))
              .toArray();
      Close.assertClose("hidden", layers, hidden.get("hidden").floats(), 1e-4);
    }
  }

  @Test
  void ofAText() throws IOException {
    Path logits = made.resolve("logits.npz");
    Path hidden = made.resolve("hidden.npz");
    Ran ran = loupe("attention", "--logits", logits, "--hidden", hidden).well();
    assertEquals("", ran.out(), "files instead of a table");
    assertTrue(ran.err().contains(logits.toString()), ran.err());
    int[] ids = Arrays.stream(IDS.split(",")).mapToInt(Integer::parseInt).toArray();
    check(logits, hidden, ids, IntStream.range(0, 8).toArray());
    loupe("attention", "--logits", logits, "--hidden", hidden, "--rows", "6,0-2,1", "--top", 1)
        .well();
    check(logits, hidden, ids, 0, 1, 2, 6);
    assertEquals(List.of("hidden.npz", "logits.npz"), Ran.names(made));
  }

  @Test
  void ofWhatIsWritten() throws IOException {
    Ran ran =
        loupe(
                "generate",
                "-n",
                5,
                "--samples",
                2,
                "--json",
                "--logits",
                made.resolve("l.npz"),
                "--hidden",
                made.resolve("h.npz"),
                "--attention",
                made.resolve("a.npz"))
            .well();
    assertEquals(
        List.of("a-1.npz", "a-2.npz", "h-1.npz", "h-2.npz", "l-1.npz", "l-2.npz"), Ran.names(made));
    for (int sample = 0; sample < 2; sample++) {
      JsonObject run = ran.json().get(sample);
      int[] ids =
          run.getAsJsonArray("tokens").asList().stream()
              .mapToInt(token -> token.getAsJsonObject().get("id").getAsInt())
              .toArray();
      check(
          made.resolve("l-%d.npz".formatted(sample + 1)),
          made.resolve("h-%d.npz".formatted(sample + 1)),
          ids,
          IntStream.range(0, ids.length).toArray());
      Npz npz = Npz.read(made.resolve("l-%d.npz".formatted(sample + 1)));
      assertEquals(8, npz.get("prompt_len").data().getLong());
      assertTrue(npz.get("logprobs").floats()[ids.length - 1] < 0);
    }
  }

  @Test
  void headsThatAreChangedAreChangedThere() throws IOException {
    Path plain = made.resolve("plain.npz");
    Path ablated = made.resolve("ablated.npz");
    loupe("attention", "--hidden", plain).well();
    loupe("attention", "--hidden", ablated, "--ablate", "1.0").well();
    float[] before = Npz.read(plain).get("hidden").floats();
    float[] after = Npz.read(ablated).get("hidden").floats();
    int block = 8 * 48;
    assertArrayEquals(Arrays.copyOf(before, 2 * block), Arrays.copyOf(after, 2 * block));
    assertTrue(Arrays.mismatch(before, 2 * block, 3 * block, after, 2 * block, 3 * block) >= 0);
  }

  @Test
  void nothingIsHalfWritten() throws IOException {
    Path file = made.resolve("a.npz");
    loupe("attention", "--rows", "0", "-q").refused(ExitCode.BAD_USAGE, "--rows");
    loupe("attention", "--logits", made.resolve("a.json"), "-q")
        .refused(ExitCode.BAD_USAGE, "--logits", ".npz");
    loupe("attention", "--hidden", made.resolve("a"), "-q").refused(ExitCode.BAD_USAGE, "--hidden");
    loupe("attention", "--hidden", file, "--rows", "0,x", "-q")
        .refused(ExitCode.BAD_USAGE, "--rows");
    loupe("attention", "--hidden", file, "--rows", "2,8", "-q")
        .refused(ExitCode.BAD_USAGE, "--rows 2,8", "no token 8", "0..7");
    loupe("attention", "--hidden", file, "--logits", file, "-q")
        .refused(ExitCode.BAD_USAGE, "--logits", "--hidden");
    loupe("attention", "--hidden", file, "--attention", file, "-q")
        .refused(ExitCode.BAD_USAGE, "--hidden");
    loupe("attention", "--hidden", file, "--layers", "1", "-q")
        .refused(ExitCode.BAD_USAGE, "--layers");
    loupe("generate", "--hidden", file, "--overflow", "slide", "-q")
        .refused(ExitCode.BAD_USAGE, "--overflow slide");
    loupe("attention", "--logits", made.resolve("none/a.npz"), "-q")
        .refused(ExitCode.FAILED, "none");
    assertEquals(List.of(), Ran.names(made));
  }

  @Test
  void aWeightThatIsNoNumber() throws IOException {
    new TinyModel(model).poke("h.2.mlp.c_proj.weight", 77, Float.NaN);
    loupe("attention", "--hidden", made.resolve("a.npz"), "-q")
        .refused(ExitCode.BAD_INPUT, "h.2.mlp.c_proj.weight", "NaN");
    assertEquals(List.of(), Ran.names(made));
  }
}
