package dev.loupe.weights.config;

import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.regex.Pattern;

/**
 * Which tensors a GPT-2 has, under Hugging Face's names and in its layout: the weights of {@code
 * Conv1D} are [in, out].
 *
 * <p>Source: {@code modeling_gpt2.py} of Hugging Face transformers.
 */
public final class Gpt2Layout {
  public static final String HEAD = "lm_head.weight";
  private static final String PREFIX = "transformer.";

  /** The causal mask and its fill value, which older checkpoints store beside the weights. */
  private static final Pattern BUFFER = Pattern.compile("h\\.[0-9]+\\.attn\\.(bias|masked_bias)");

  /**
   * Of GPT2ForSequenceClassification, ForTokenClassification, ForQuestionAnswering, DoubleHeads.
   */
  private static final Pattern CLASSIFIER =
      Pattern.compile("(^|\\.)(score|classifier|qa_outputs|multiple_choice_head|v_head)\\.");

  private Gpt2Layout() {}

  /**
   * The shape of every tensor that the model needs, in the order of the forward pass.
   *
   * @param separateHead whether {@code lm_head.weight} is among them
   */
  public static Map<String, List<Long>> shapes(Gpt2Config config, boolean separateHead) {
    long c = config.nEmbd();
    long inner = config.nInner();
    Map<String, List<Long>> shapes = new LinkedHashMap<>();
    shapes.put("wte.weight", List.of((long) config.vocabSize(), c));
    shapes.put("wpe.weight", List.of((long) config.nPositions(), c));
    for (int layer = 0; layer < config.nLayer(); layer++) {
      String h = "h." + layer;
      affine(shapes, h + ".ln_1", List.of(c));
      affine(shapes, h + ".attn.c_attn", List.of(c, 3 * c));
      affine(shapes, h + ".attn.c_proj", List.of(c, c));
      affine(shapes, h + ".ln_2", List.of(c));
      affine(shapes, h + ".mlp.c_fc", List.of(c, inner));
      affine(shapes, h + ".mlp.c_proj", List.of(inner, c));
    }
    affine(shapes, "ln_f", List.of(c));
    if (separateHead) {
      shapes.put(HEAD, List.of((long) config.vocabSize(), c));
    }
    return shapes;
  }

  private static void affine(Map<String, List<Long>> shapes, String name, List<Long> weight) {
    shapes.put(name + ".weight", weight);
    shapes.put(name + ".bias", List.of(weight.getLast()));
  }

  /** Whether it is the head's name, with anything in front of it. */
  public static boolean isHead(String name) {
    return name.equals(HEAD) || name.endsWith("." + HEAD);
  }

  /** Whether a tensor belongs to a head that judges texts instead of continuing them. */
  public static boolean isClassifier(String name) {
    return CLASSIFIER.matcher(name).find();
  }

  /** The name with {@code transformer.}, as {@code GPT2LMHeadModel} saves it. */
  public static String prefixed(String canonical) {
    return canonical.equals(HEAD) ? canonical : PREFIX + canonical;
  }

  /** Whether it is a mask, not a weight; beware of {@code h.N.attn.c_attn.bias}, which is one. */
  public static boolean isBuffer(String canonical) {
    return BUFFER.matcher(canonical).matches();
  }
}
