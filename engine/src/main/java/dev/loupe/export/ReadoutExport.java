package dev.loupe.export;

import dev.loupe.generate.Generation;
import dev.loupe.interpret.Readout;
import dev.loupe.weights.config.Gpt2Config;
import java.io.IOException;
import java.nio.file.Path;

/**
 * Logits and the residual stream of a run as numpy arrays, written while they are computed. A
 * failure leaves a part of a file behind: give a temporary file and rename it afterwards.
 */
public final class ReadoutExport {
  private ReadoutExport() {}

  /**
   * Writes {@code logits} [rows, vocab_size], and what they are of: rows, token_ids, tokens,
   * prompt_len, logprobs.
   *
   * @param readout of the run's tokens
   * @param rows which tokens, ascending
   */
  public static void logits(Generation run, Readout readout, int[] rows, Path file)
      throws IOException {
    long[] shape = {rows.length, run.model().config().vocabSize()};
    try (NpzWriter npz = new NpzWriter(file)) {
      npz.array(
          "logits",
          NpzWriter.Type.F4,
          shape,
          out -> readout.logits(rows, (_, _, values) -> out.putFloats(values)));
      about(npz, run, rows);
    }
  }

  /**
   * Writes {@code hidden} [n_layer + 1, rows, n_embd], the residual stream before the first block
   * and after each, {@code final} [rows, n_embd], that after the last layer norm, and what they are
   * of: rows, token_ids, tokens, prompt_len, logprobs.
   *
   * @param readout of the run's tokens
   * @param rows which tokens, ascending
   */
  public static void hidden(Generation run, Readout readout, int[] rows, Path file)
      throws IOException {
    Gpt2Config config = run.model().config();
    try (NpzWriter npz = new NpzWriter(file)) {
      npz.array(
          "hidden",
          NpzWriter.Type.F4,
          new long[] {config.nLayer() + 1, rows.length, config.nEmbd()},
          out -> readout.residual(rows, (_, _, values) -> out.putFloats(values)));
      npz.array(
          "final",
          NpzWriter.Type.F4,
          new long[] {rows.length, config.nEmbd()},
          out -> readout.finalNorm(rows, (_, _, values) -> out.putFloats(values)));
      about(npz, run, rows);
    }
  }

  private static void about(NpzWriter npz, Generation run, int[] rows) throws IOException {
    NpzExport.numbers(npz, "rows", rows);
    NpzExport.tokens(npz, run.tokens(), run.promptLength());
  }
}
