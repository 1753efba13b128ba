package dev.loupe.cli.run;

import dev.loupe.model.Interventions;
import dev.loupe.text.Count;
import java.util.ArrayList;
import java.util.List;
import picocli.CommandLine.Option;

/** Changes to heads of the model. */
public final class InterventionOptions {
  public enum Ablation {
    ZERO,
    MEAN
  }

  @Option(
      names = "--ablate",
      paramLabel = "L.H",
      split = ",",
      description = "Leave out head H of layer L, or several: 4.0,5.2")
  List<String> ablate = new ArrayList<>();

  @Option(
      names = "--ablate-to",
      paramLabel = "A",
      description =
          "What replaces them: zero, or mean, which is what they add on average over the prompt"
              + " (default: zero).")
  Ablation ablateTo = Ablation.ZERO;

  @Option(
      names = "--scale",
      paramLabel = "L.H=X",
      split = ",",
      description = "Multiply what head H of layer L adds by X.")
  List<String> scale = new ArrayList<>();

  @Option(
      names = "--n-head",
      paramLabel = "K",
      description = "Split the same weights into K heads a layer.")
  int heads;

  Interventions interventions() {
    Interventions all = Interventions.NONE;
    if (heads != 0) {
      all = all.heads(heads);
    }
    for (String head : ablate) {
      int[] at = head("--ablate", head);
      all = ablateTo == Ablation.MEAN ? all.mean(at[0], at[1]) : all.scale(at[0], at[1], 0);
    }
    for (String scaled : scale) {
      int equals = scaled.indexOf('=');
      if (equals < 0) {
        throw new IllegalArgumentException(
            "--scale %s: layer.head=factor, 4.0=0.5 for example".formatted(scaled));
      }
      int[] at = head("--scale", scaled.substring(0, equals));
      all = all.scale(at[0], at[1], factor(scaled.substring(equals + 1)));
    }
    return all;
  }

  /** The layer and head that an option names. */
  static int[] head(String option, String text) {
    String[] parts = text.strip().split("\\.", -1);
    try {
      if (parts.length == 2) {
        return new int[] {Integer.parseUnsignedInt(parts[0]), Integer.parseUnsignedInt(parts[1])};
      }
    } catch (NumberFormatException e) {
      // said below
    }
    throw new IllegalArgumentException(
        "%s %s: layer.head, 4.0 for example".formatted(option, text));
  }

  private static double factor(String text) {
    try {
      return Double.parseDouble(text.strip());
    } catch (NumberFormatException e) {
      throw new IllegalArgumentException("--scale: '%s' is no number".formatted(text));
    }
  }

  /** What was asked for, in words; empty if nothing was. */
  String words() {
    List<String> words = new ArrayList<>();
    if (heads != 0) {
      words.add("the weights cut into %s a layer".formatted(Count.of(heads, "head")));
    }
    if (!ablate.isEmpty()) {
      words.add(
          "%s %s %s"
              .formatted(
                  ablate.size() == 1 ? "head" : "heads",
                  String.join(", ", ablate),
                  ablateTo == Ablation.MEAN ? "at the mean" : "left out"));
    }
    for (String each : scale) {
      words.add("head %s".formatted(each.replace("=", " times ")));
    }
    return String.join(", ", words);
  }
}
