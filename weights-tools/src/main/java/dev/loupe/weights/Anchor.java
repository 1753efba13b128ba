package dev.loupe.weights;

import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;

/**
 * Where among the tensors of a checkpoint the GPT-2 lies: programs save it inside other modules,
 * whose names then stand in front of its tensors' names ({@code transformer.}, {@code module.},
 * {@code _orig_mod.}, {@code base_model.model.}). One tensor that every GPT-2 has tells what.
 *
 * @param prefix what stands in front of the names of all tensors but the head's
 */
record Anchor(String prefix) {
  private static final String TENSOR = "h.0.ln_1.weight";
  private static final String USUAL = "transformer.";

  /** Whether a dict with this name in it is the model's. */
  static boolean isHere(Collection<String> names) {
    return names.stream().anyMatch(Anchor::isAnchor);
  }

  private static boolean isAnchor(String name) {
    return name.equals(TENSOR) || name.endsWith("." + TENSOR);
  }

  /**
   * Finds it.
   *
   * @param names of all tensors
   * @throws CheckpointException if there are several models, so that the user has to choose
   */
  static Anchor of(Collection<String> names, Path file) throws CheckpointException {
    List<String> found = new ArrayList<>();
    for (String name : names) {
      if (isAnchor(name)) {
        found.add(name.substring(0, name.length() - TENSOR.length()));
      }
    }
    if (found.size() > 1) {
      throw new CheckpointException(
          "%s holds more than one GPT-2: %s%s and %s%s; save one of them alone"
              .formatted(
                  file,
                  StrictJson.shown(found.get(0)),
                  TENSOR,
                  StrictJson.shown(found.get(1)),
                  TENSOR));
    }
    return new Anchor(found.isEmpty() ? USUAL : found.getFirst());
  }

  /**
   * The name that Hugging Face's GPT2Model has for a tensor, or {@code lm_head.weight}. The head
   * lies beside the model or in a module around it, so only a part of the prefix is in front of it.
   * Of what is none of the model's, the name stays as it is.
   */
  String canonical(String name) {
    if (name.startsWith(prefix)) {
      return name.substring(prefix.length());
    }
    if (Gpt2Layout.isHead(name)
        && prefix.startsWith(name.substring(0, name.length() - Gpt2Layout.HEAD.length()))) {
      return Gpt2Layout.HEAD;
    }
    return name;
  }
}
