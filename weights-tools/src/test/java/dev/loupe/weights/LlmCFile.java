package dev.loupe.weights;

import dev.loupe.weights.config.Gpt2Config;
import dev.loupe.weights.tensor.StoredTensor;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;

/** Writes what llm.c's {@code write_model} and {@code write_tokenizer} write, from their text. */
public final class LlmCFile {
  private LlmCFile() {}

  /** The model in f32 or bf16, its vocabulary padded to a multiple of 128 by {@code padding}. */
  public static Path write(Checkpoint model, boolean bf16, float padding, Path file)
      throws IOException {
    Gpt2Config c = model.config();
    int padded = (c.vocabSize() + 127) / 128 * 128;
    ByteArrayOutputStream out = new ByteArrayOutputStream();
    header(
        out,
        20240326,
        bf16 ? 5 : 3,
        c.nPositions(),
        c.vocabSize(),
        c.nLayer(),
        c.nHead(),
        c.nEmbd(),
        padded);
    put(out, values(model, "wte.weight"), bf16);
    float[] rows = new float[(padded - c.vocabSize()) * c.nEmbd()];
    java.util.Arrays.fill(rows, padding);
    put(out, rows, bf16);
    put(out, values(model, "wpe.weight"), bf16);
    for (String part :
        List.of("ln_1", "attn.c_attn", "attn.c_proj", "ln_2", "mlp.c_fc", "mlp.c_proj")) {
      for (String kind : List.of("weight", "bias")) {
        for (int i = 0; i < c.nLayer(); i++) {
          String name = "h." + i + "." + part + "." + kind;
          float[] w = values(model, name);
          List<Long> shape = model.tensor(name).shape();
          put(out, shape.size() == 2 ? transposed(w, shape.getFirst().intValue()) : w, bf16);
        }
      }
    }
    put(out, values(model, "ln_f.weight"), bf16);
    put(out, values(model, "ln_f.bias"), bf16);
    return Files.write(file, out.toByteArray());
  }

  /** The tokens' bytes; the last is the end of text. */
  public static Path writeTokenizer(List<byte[]> tokens, int version, Path file)
      throws IOException {
    ByteArrayOutputStream out = new ByteArrayOutputStream();
    header(out, 20240328, version, tokens.size(), version == 2 ? tokens.size() - 1 : 0);
    for (byte[] token : tokens) {
      out.write(token.length);
      out.writeBytes(token);
    }
    return Files.write(file, out.toByteArray());
  }

  private static void header(ByteArrayOutputStream out, int... numbers) {
    ByteBuffer header = ByteBuffer.allocate(1024).order(ByteOrder.LITTLE_ENDIAN);
    header.asIntBuffer().put(numbers);
    out.writeBytes(header.array());
  }

  private static float[] values(Checkpoint model, String name) {
    StoredTensor tensor = model.tensor(name);
    float[] values = new float[(int) tensor.elements()];
    tensor.read(0, values, 0, values.length);
    return values;
  }

  /** [in, out] as [out, in]. */
  private static float[] transposed(float[] w, int in) {
    int out = w.length / in;
    float[] t = new float[w.length];
    for (int i = 0; i < in; i++) {
      for (int o = 0; o < out; o++) {
        t[o * in + i] = w[i * out + o];
      }
    }
    return t;
  }

  private static void put(ByteArrayOutputStream out, float[] values, boolean bf16) {
    for (float value : values) {
      int bits = Float.floatToRawIntBits(value);
      for (int shift = bf16 ? 16 : 0; shift < 32; shift += 8) {
        out.write(bits >>> shift); // what bf16 leaves out is 0 in the models of these tests
      }
    }
  }
}
