package dev.loupe.cli.terminal;

import static java.nio.charset.StandardCharsets.UTF_8;
import static org.junit.jupiter.api.Assertions.assertEquals;

import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.OutputStream;
import org.junit.jupiter.api.Test;

/** What a person hears while a driver compiles. */
class CompileProgressTest {
  private final ByteArrayOutputStream err = new ByteArrayOutputStream();

  private CompileProgress progress(boolean terminal) {
    return new CompileProgress(
        Terminal.of(
            new ByteArrayInputStream(new byte[0]), OutputStream.nullOutputStream(), err, terminal));
  }

  private String said() {
    return err.toString(UTF_8).replace("\r", "<").replace("\u001b[K", ">");
  }

  private static void compile(CompileProgress progress, boolean kept) {
    progress.compiling("gemv_v1_f16", 1, 0, kept);
    progress.compiled();
    progress.compiling("attention_v4_d64_f16", 2, 299, kept);
    progress.compiled();
    progress.compiling("linear_v4_f16", 3, 1500, kept);
    progress.compiled();
    progress.compiling("sample_v1_f32", 4, 2500, kept);
    progress.compiled();
  }

  @Test
  void aTerminalShowsEachKernelWhileItIsCompiled() {
    compile(progress(true), true);
    String line =
        "<>[the driver compiles kernels for this card: %s; it keeps them for the next start]<>";
    assertEquals(
        line.formatted("linear_v4_f16, number 3") + line.formatted("sample_v1_f32, number 4"),
        said());
  }

  @Test
  void aFileGetsOneLine() {
    compile(progress(false), false);
    assertEquals(
        "[the driver compiles kernels for this card; set CUDA_CACHE_PATH to a folder that can be"
            + " written, and it keeps them]\n",
        said());
  }

  @Test
  void nothingIsSaidOfKernelsThatTheDriverHadKept() {
    CompileProgress progress = progress(true);
    for (int i = 1; i <= 100; i++) {
      progress.compiling("k", i, 2.9 * (i - 1), true);
      progress.compiled();
    }
    assertEquals("", said());
  }
}
