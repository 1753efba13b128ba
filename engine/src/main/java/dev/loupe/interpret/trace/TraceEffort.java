package dev.loupe.interpret.trace;

import dev.loupe.weights.config.Gpt2Config;

/**
 * What a trace takes at most, known before it starts.
 *
 * @param cuts readings of the text with something changed
 * @param layerRows rows of the text times the layers that are computed for them, of all readings
 * @param effects how many of these the effects of single parts take
 * @param search how many the search for the smallest set takes
 */
public record TraceEffort(long cuts, long layerRows, long effects, long search) {
  public TraceEffort {
    if (cuts < 0 || effects < 0 || search < 0 || layerRows < effects + search) {
      throw new IllegalArgumentException(
          "%d cuts, %d rows of layers, %d and %d of them"
              .formatted(cuts, layerRows, effects, search));
    }
  }

  static TraceEffort of(Gpt2Config config, int tokens, TraceRequest request) {
    boolean patch = request.patch().isPresent();
    long layers = config.nLayer();
    long parts = layers * (config.nHead() + 1);
    long kinds = patch ? 3 : 2;
    long halves = (config.nHead() + 1) * layers * (layers + 1) / 2; // each from its layer on
    long effects = kinds * halves + parts + layers * (patch ? 2 : 1);
    long candidates = request.mlps() ? parts : parts - layers;
    long widest = Math.min(candidates, CircuitSearch.widest(request.most()));
    long searches = 1 + candidates + widest + widest * (widest + 1) / 2;
    long members = Math.min(request.most(), candidates / 2);
    long edges = 3 * members * (members - 1) / 2;
    long sets = CircuitSearch.trials(edges + members);
    long places = members * Places.cuts(tokens);
    return new TraceEffort(
        (kinds + 1) * parts + searches + edges + members + sets + places,
        tokens
            * (effects
                + (searches + places) * layers
                + edges * (layers + 1)
                + members
                + sets * (layers + 1)),
        tokens * effects,
        tokens * searches * layers);
  }
}
