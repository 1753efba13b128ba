package dev.loupe.weights.config;

import dev.loupe.weights.io.CheckpointException;
import dev.loupe.weights.io.StrictJson;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.regex.Pattern;

/**
 * Where among the tensors of a checkpoint the GPT-2 lies: programs save it inside other modules,
 * whose names then stand in front of its tensors' names ({@code transformer.}, {@code module.},
 * {@code base_model.model.}). One tensor that every GPT-2 has tells what. Modules that torch puts
 * around others, within the model too, have names that begin with an underscore ({@code _orig_mod},
 * {@code _fsdp_wrapped_module}); no module of a GPT-2 has, so they are taken out.
 *
 * @param prefix what stands in front of the names of all tensors but the head's, without those
 */
public record Anchor(String prefix) {
  private static final String TENSOR = "h.0.ln_1.weight";
  private static final String USUAL = "transformer.";
  private static final Pattern AROUND = Pattern.compile("(?<=^|\\.)_[^.]*\\.");

  /** Whether a dict with this name in it is the model's. */
  public static boolean isHere(Collection<String> names) {
    return names.stream().anyMatch(Anchor::isAnchor);
  }

  private static boolean isAnchor(String name) {
    String own = withoutWrappers(name);
    return own.equals(TENSOR) || own.endsWith("." + TENSOR);
  }

  private static String withoutWrappers(String name) {
    return AROUND.matcher(name).replaceAll("");
  }

  /**
   * Finds it.
   *
   * @param names of all tensors
   * @throws CheckpointException if there are several models, so that the user has to choose
   */
  public static Anchor of(Collection<String> names, Path file) throws CheckpointException {
    List<String> found = new ArrayList<>();
    for (String name : names) {
      if (isAnchor(name)) {
        found.add(name);
      }
    }
    if (found.size() > 1) {
      throw new CheckpointException(
          "%s holds more than one GPT-2: %s and %s; save one of them alone"
              .formatted(file, StrictJson.shown(found.get(0)), StrictJson.shown(found.get(1))));
    }
    if (found.isEmpty()) {
      return new Anchor(USUAL);
    }
    String name = withoutWrappers(found.getFirst());
    return new Anchor(name.substring(0, name.length() - TENSOR.length()));
  }

  /**
   * The name that Hugging Face's GPT2Model has for a tensor, or {@code lm_head.weight}. The head
   * lies beside the model or in a module around it, so only a part of the prefix is in front of it.
   * Of what is none of the model's, the name stays as it is.
   */
  public String canonical(String name) {
    String own = withoutWrappers(name);
    if (own.startsWith(prefix)) {
      return own.substring(prefix.length());
    }
    if (Gpt2Layout.isHead(own)
        && prefix.startsWith(own.substring(0, own.length() - Gpt2Layout.HEAD.length()))) {
      return Gpt2Layout.HEAD;
    }
    return name;
  }
}
