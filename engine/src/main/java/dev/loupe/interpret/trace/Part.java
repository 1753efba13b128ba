package dev.loupe.interpret.trace;

import dev.loupe.weights.config.Gpt2Config;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;

/**
 * What adds to the residual stream: a head, or the MLP of a layer. Their order is that in which a
 * pass computes them.
 *
 * @param layer from 0
 * @param head from 0; {@link #MLP} for the MLP
 */
public record Part(int layer, int head) implements Comparable<Part> {
  /** In place of a head's number. */
  public static final int MLP = -1;

  private static final Comparator<Part> ORDER =
      Comparator.comparingInt(Part::layer)
          .thenComparingInt(part -> part.isMlp() ? Integer.MAX_VALUE : part.head);

  public Part {
    if (layer < 0 || head < MLP) {
      throw new IllegalArgumentException("layer %d, head %d: not 0 or more".formatted(layer, head));
    }
  }

  /** The MLP of a layer. */
  public static Part mlp(int layer) {
    return new Part(layer, MLP);
  }

  /** All parts of a model, in their order. */
  public static List<Part> all(Gpt2Config config) {
    List<Part> all = new ArrayList<>();
    for (int layer = 0; layer < config.nLayer(); layer++) {
      for (int head = 0; head < config.nHead(); head++) {
        all.add(new Part(layer, head));
      }
      all.add(mlp(layer));
    }
    return all;
  }

  /** Whether it is an MLP. */
  public boolean isMlp() {
    return head == MLP;
  }

  /** Whether {@code later} reads what this one adds; heads of one layer do not read each other. */
  public boolean isReadBy(Part later) {
    return layer < later.layer || (layer == later.layer && !isMlp() && later.isMlp());
  }

  /** How it is called: {@code 4.0}, or {@code MLP 4}. */
  public String label() {
    return isMlp() ? "MLP " + layer : layer + "." + head;
  }

  @Override
  public int compareTo(Part other) {
    return ORDER.compare(this, other);
  }
}
