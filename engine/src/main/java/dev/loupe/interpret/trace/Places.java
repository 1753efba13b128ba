package dev.loupe.interpret.trace;

import dev.loupe.interpret.trace.Circuit.Place;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/**
 * Finds at which positions a part's output counts, by halving the text: a half is looked into where
 * replacing the output there has a quarter of the effect that it has everywhere.
 */
final class Places {
  private static final double LEAST_SHARE = 0.25;

  private final Experiment experiment;
  private final Replacements replacements;
  private final Paths paths;

  Places(Experiment experiment, Replacements replacements, Paths paths) {
    this.experiment = experiment;
    this.replacements = replacements;
    this.paths = paths;
  }

  /** Readings that it takes at most for a part: four halves can each have a quarter. */
  static int cuts(int tokens) {
    int halvings = Integer.SIZE - Integer.numberOfLeadingZeros(Math.max(tokens - 1, 0));
    return 1 + 8 * halvings;
  }

  private record Stretch(Part part, int from, int to) {}

  List<Place> of(List<Part> parts) {
    List<Place> places = new ArrayList<>();
    List<Stretch> all =
        parts.stream().map(part -> new Stretch(part, 0, experiment.tokens())).toList();
    Map<Part, Double> everywhere = new HashMap<>();
    double[] effects = effects(all);
    for (int i = 0; i < effects.length; i++) {
      everywhere.put(parts.get(i), effects[i]);
    }
    while (!all.isEmpty()) {
      List<Stretch> halves = new ArrayList<>();
      for (int i = 0; i < all.size(); i++) {
        Stretch stretch = all.get(i);
        double whole = everywhere.getOrDefault(stretch.part, 0.0);
        if (whole == 0 || effects[i] / whole < LEAST_SHARE) {
          continue;
        }
        if (stretch.to - stretch.from == 1) {
          places.add(place(stretch.part, stretch.from, effects[i]));
        } else {
          int middle = (stretch.from + stretch.to) / 2;
          halves.add(new Stretch(stretch.part, stretch.from, middle));
          halves.add(new Stretch(stretch.part, middle, stretch.to));
        }
      }
      all = halves;
      effects = effects(all);
    }
    places.sort(Comparator.comparing(Place::part).thenComparingInt(Place::position));
    return places;
  }

  private Place place(Part part, int position, double effect) {
    if (part.isMlp()) {
      return new Place(part, position, effect, position, 1);
    }
    double[] row = paths.row(part, position);
    int key = 0;
    for (int i = 1; i < row.length; i++) {
      key = row[i] > row[key] ? i : key;
    }
    return new Place(part, position, effect, key, row[key]);
  }

  private double[] effects(List<Stretch> stretches) {
    List<Cut> cuts = new ArrayList<>();
    for (Stretch s : stretches) {
      float[] all = replacements.of(s.part);
      int columns = all.length / experiment.tokens();
      float[] rows = Arrays.copyOfRange(all, s.from * columns, s.to * columns);
      cuts.add(new Cut(List.of(Cut.change(s.part, rows, s.from, s.to))));
    }
    return experiment.effects(cuts);
  }
}
