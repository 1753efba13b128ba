package dev.loupe.export;

import dev.loupe.attention.AttentionMaps;
import dev.loupe.generate.Token;
import dev.loupe.weights.tensor.DType;
import java.io.IOException;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.List;

/**
 * Maps as numpy arrays: attention, scores, layers, heads, token_ids, tokens, prompt_len, logprobs.
 */
final class NpzExport {
  private NpzExport() {}

  static void write(MappedRun run, ColourScale colour, Path file) throws IOException {
    AttentionMaps maps = run.maps();
    try (NpzWriter npz = new NpzWriter(file)) {
      squares(
          npz,
          "attention",
          maps.dtype() == DType.F16 ? NpzWriter.Type.F2 : NpzWriter.Type.F4,
          maps,
          0);
      AttentionMaps scores = run.scores();
      if (scores != null) {
        squares(npz, "scores", NpzWriter.Type.F4, scores, Float.NEGATIVE_INFINITY);
      }
      numbers(npz, "layers", maps.layers());
      numbers(npz, "heads", maps.heads());
      tokens(npz, run.tokens(), run.promptLength());
    }
  }

  /** token_ids, tokens, prompt_len and logprobs. */
  static void tokens(NpzWriter npz, List<Token> tokens, int promptLength) throws IOException {
    long[] perToken = {tokens.size()};
    npz.array(
        "token_ids",
        NpzWriter.Type.I8,
        perToken,
        out -> {
          for (Token token : tokens) {
            out.putLong(token.id());
          }
        });
    npz.strings("tokens", tokens.stream().map(Token::label).toArray(String[]::new));
    npz.array("prompt_len", NpzWriter.Type.I8, new long[0], out -> out.putLong(promptLength));
    npz.array(
        "logprobs",
        NpzWriter.Type.F4,
        perToken,
        out -> {
          float[] logprobs = new float[tokens.size()];
          for (int i = 0; i < logprobs.length; i++) {
            logprobs[i] = (float) tokens.get(i).logprob();
          }
          out.putFloats(logprobs);
        });
  }

  /** [L, H, T, T] from packed rows, with {@code above} above the diagonal. */
  private static void squares(
      NpzWriter npz, String name, NpzWriter.Type type, AttentionMaps maps, float above)
      throws IOException {
    int t = maps.tokens();
    long[] shape = {maps.layers().length, maps.heads().length, t, t};
    npz.array(
        name,
        type,
        shape,
        out -> {
          float[] line = new float[t];
          for (int layer : maps.layers()) {
            for (int head : maps.heads()) {
              Arrays.fill(line, above);
              for (int query = 0; query < t; query++) {
                System.arraycopy(maps.row(layer, head, query), 0, line, 0, query + 1);
                if (type == NpzWriter.Type.F2) {
                  out.putHalves(line);
                } else {
                  out.putFloats(line);
                }
              }
            }
          }
        });
  }

  static void numbers(NpzWriter npz, String name, int[] values) throws IOException {
    npz.array(
        name,
        NpzWriter.Type.I4,
        new long[] {values.length},
        out -> {
          for (int value : values) {
            out.putInt(value);
          }
        });
  }
}
