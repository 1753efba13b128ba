package dev.loupe.weights;

import dev.loupe.weights.tensor.DType;
import java.lang.foreign.MemorySegment;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.SplittableRandom;

/** A random GPT-2 as GGUF, and what its tensors must be once they are open. */
public final class GgufModel {
  public final GgufBytes file = new GgufBytes();

  /** Of each tensor in Hugging Face's layout, by Hugging Face's name. */
  public final Map<String, float[]> values = new LinkedHashMap<>();

  /** The tensors as they are stored, by Hugging Face's name. */
  public final Map<String, Part> parts = new LinkedHashMap<>();

  /** One stored tensor. */
  public static final class Part {
    private final int type;
    private final byte[] data;
    private final List<Integer> innermostFirst;

    private Part(int type, byte[] data, List<Integer> innermostFirst) {
      this.type = type;
      this.data = data;
      this.innermostFirst = innermostFirst;
    }

    public int type() {
      return type;
    }

    public byte[] data() {
      return data;
    }

    public List<Integer> innermostFirst() {
      return innermostFirst;
    }
  }

  private final SplittableRandom random = new SplittableRandom(7);
  private final int type;

  /**
   * One layer.
   *
   * @param type of the matrices; the rest is f32, as llama.cpp wants it
   */
  public GgufModel(int type, int c, int inner, int positions, int vocabulary, boolean head) {
    this.type = type;
    file.text("general.architecture", "gpt2")
        .u32("gpt2.context_length", positions)
        .u32("gpt2.embedding_length", c)
        .u32("gpt2.feed_forward_length", inner)
        .u32("gpt2.block_count", 1)
        .u32("gpt2.attention.head_count", 2)
        .f32("gpt2.attention.layer_norm_epsilon", 1e-6f);
    table("token_embd.weight", "wte.weight", vocabulary, c, type);
    table("position_embd.weight", "wpe.weight", positions, c, 0);
    norm("blk.0.attn_norm", "h.0.ln_1", c);
    linear("blk.0.attn_qkv", "h.0.attn.c_attn", c, 3 * c);
    linear("blk.0.attn_output", "h.0.attn.c_proj", c, c);
    norm("blk.0.ffn_norm", "h.0.ln_2", c);
    linear("blk.0.ffn_up", "h.0.mlp.c_fc", c, inner);
    linear("blk.0.ffn_down", "h.0.mlp.c_proj", inner, c);
    norm("output_norm", "ln_f", c);
    if (head) {
      table("output.weight", "lm_head.weight", vocabulary, c, type);
    }
  }

  private void norm(String gguf, String name, int c) {
    vector(gguf + ".weight", name + ".weight", c);
    vector(gguf + ".bias", name + ".bias", c);
  }

  private void vector(String gguf, String name, int n) {
    float[] x = new float[n];
    put(gguf, name, 0, x, n);
    values.put(name, x);
  }

  private void table(String gguf, String name, int rows, int columns, int ofType) {
    float[] x = new float[rows * columns];
    put(gguf, name, ofType, x, columns, rows);
    values.put(name, x);
  }

  private void linear(String gguf, String name, int in, int out) {
    float[] x = new float[in * out];
    put(gguf + ".weight", name + ".weight", type, x, in, out);
    float[] transposed = new float[in * out];
    for (int o = 0; o < out; o++) {
      for (int i = 0; i < in; i++) {
        transposed[i * out + o] = x[o * in + i];
      }
    }
    values.put(name + ".weight", transposed);
    vector(gguf + ".bias", name + ".bias", out);
  }

  private void put(String gguf, String name, int ofType, float[] x, Integer... innermostFirst) {
    byte[] data = make(ofType, x);
    List<Integer> extents = List.of(innermostFirst);
    parts.put(name, new Part(ofType, data, extents));
    file.tensor(gguf, ofType, data, extents.stream().mapToLong(Integer::longValue).toArray());
  }

  /** Random data of a type; {@code x} gets what they stand for. */
  private byte[] make(int ofType, float[] x) {
    DType plain =
        switch (ofType) {
          case 0 -> DType.F32;
          case 1 -> DType.F16;
          case 28 -> DType.F64;
          case 30 -> DType.BF16;
          default -> null;
        };
    if (plain == null) {
      Blocks blocks = new Blocks(ofType);
      byte[] data = blocks.random(x.length / blocks.elements, random);
      System.arraycopy(blocks.values(data), 0, x, 0, x.length);
      return data;
    }
    for (int i = 0; i < x.length; i++) {
      x[i] = (float) random.nextDouble(-0.1, 0.3);
    }
    byte[] data = new byte[x.length * plain.bytes()];
    plain.encode(x, 0, x.length, MemorySegment.ofArray(data), 0);
    plain.decode(MemorySegment.ofArray(data), 0, x, 0, x.length);
    return data;
  }
}
