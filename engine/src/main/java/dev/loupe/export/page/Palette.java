package dev.loupe.export.page;

import java.util.List;

/**
 * Colours between evenly spaced stops, mixed in sRGB.
 *
 * @param stops at least two, each {@code #rrggbb}
 */
public record Palette(List<String> stops) {
  /** One hue from nothing to 1, on a white ground. */
  public static final Palette SEQUENTIAL_LIGHT =
      of("#f8fafe #d1def9 #abc2f2 #86a6eb #6389e2 #4b6fc4 #3556a6 #203d89 #0c246d");

  /** One hue from nothing to 1, on a dark ground. */
  public static final Palette SEQUENTIAL_DARK =
      of("#151a1f #1f3144 #274a6c #2e6497 #357fc4 #5f9bd8 #87b8eb #aed5fd #e3f0fe");

  /** Blue for less, orange for more, on a white ground. */
  public static final Palette DIVERGING_LIGHT =
      of("#0e5caf #4782cd #81a9dd #bacfeb #f7f5f3 #e5c6b1 #d19870 #bb6927 #8f4802");

  /** Blue for less, orange for more, on a dark ground. */
  public static final Palette DIVERGING_DARK =
      of("#80c5ff #4999d7 #3d6e95 #2e4558 #211f1d #533e29 #8a5e32 #c58137 #fba952");

  public Palette {
    stops = List.copyOf(stops);
    if (stops.size() < 2) {
      throw new IllegalArgumentException("a palette of %d stops".formatted(stops.size()));
    }
  }

  private static Palette of(String stops) {
    return new Palette(List.of(stops.split(" ")));
  }

  /** The colour at {@code position} 0..1, as 0xRRGGBB. */
  public int rgb(double position) {
    double place = position * (stops.size() - 1);
    int below = Math.min((int) place, stops.size() - 2);
    double part = place - below;
    int from = Integer.decode(stops.get(below));
    int to = Integer.decode(stops.get(below + 1));
    int mixed = 0;
    for (int shift = 16; shift >= 0; shift -= 8) {
      int a = from >> shift & 255;
      int b = to >> shift & 255;
      mixed |= (int) Math.round(a + part * (b - a)) << shift;
    }
    return mixed;
  }

  /** {@code size} colours from position 0 to 1, as 0xRRGGBB. */
  public int[] table(int size) {
    int[] table = new int[size];
    for (int i = 0; i < size; i++) {
      table[i] = rgb((double) i / (size - 1));
    }
    return table;
  }
}
