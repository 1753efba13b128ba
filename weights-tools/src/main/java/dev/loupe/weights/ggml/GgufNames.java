package dev.loupe.weights.ggml;

import java.util.HashMap;
import java.util.Map;
import org.jspecify.annotations.Nullable;

/**
 * What GGUF calls the tensors of a GPT-2: {@code h.3.attn.c_attn.weight} is {@code
 * blk.3.attn_qkv.weight}.
 *
 * <p>Source: the table of architectures in llama.cpp, gguf-py/gguf/constants.py.
 */
public final class GgufNames {
  /** The tensors outside of blocks and those of a block, by Hugging Face's names. */
  private static final Map<String, String> NAMES =
      Map.ofEntries(
          Map.entry("wte", "token_embd"),
          Map.entry("wpe", "position_embd"),
          Map.entry("ln_f", "output_norm"),
          Map.entry("lm_head", "output"),
          Map.entry("ln_1", "attn_norm"),
          Map.entry("attn.c_attn", "attn_qkv"),
          Map.entry("attn.c_proj", "attn_output"),
          Map.entry("ln_2", "ffn_norm"),
          Map.entry("mlp.c_fc", "ffn_up"),
          Map.entry("mlp.c_proj", "ffn_down"));

  private static final Map<String, String> BACK = new HashMap<>();

  static {
    NAMES.forEach((name, gguf) -> BACK.put(gguf, name));
  }

  private GgufNames() {}

  /**
   * GGUF's name.
   *
   * @throws IllegalArgumentException if it has none for this tensor
   */
  public static String of(String huggingFace) {
    String name = renamed(huggingFace, "h.", "blk.", NAMES);
    if (name == null) {
      throw new IllegalArgumentException("GGUF has no name for " + huggingFace);
    }
    return name;
  }

  /** Hugging Face's name; the same one where it has none. */
  static String huggingFace(String gguf) {
    String name = renamed(gguf, "blk.", "h.", BACK);
    return name == null ? gguf : name;
  }

  private static @Nullable String renamed(
      String name, String block, String newBlock, Map<String, String> names) {
    int dot = name.lastIndexOf('.'); // before weight or bias
    int from = name.startsWith(block) ? name.indexOf('.', block.length()) + 1 : 0;
    if (from > dot || dot < 0) {
      return null;
    }
    String layer = from == 0 ? "" : newBlock + name.substring(block.length(), from);
    String renamed = names.get(name.substring(from, dot));
    return renamed == null ? null : layer + renamed + name.substring(dot);
  }
}
