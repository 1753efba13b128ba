package dev.loupe.export;

import java.util.Map;

/**
 * How a run was made, as far as its result does not say.
 *
 * @param strategy {@code greedy} or {@code sample}
 * @param sampling the sampling parameters under their names in JSON; values are numbers, booleans,
 *     strings or lists of them
 * @param seed of the sampler
 * @param backend {@code cpu} or {@code cuda}
 * @param device what it ran on, in words
 * @param loadMs milliseconds it took to open the model
 */
public record RunDetails(
    String strategy,
    Map<String, Object> sampling,
    long seed,
    String backend,
    String device,
    double loadMs) {}
