package dev.loupe;

import dev.loupe.weights.Gpt2Config;

/**
 * Which model a run came from.
 *
 * @param source where it was opened from, as the user wrote it
 * @param sha256 hash of the weights file in hex, or empty when it was not computed
 * @param config the shape of the model
 * @param dtype element type of the weights in use, e.g. {@code f32}
 */
public record ModelInfo(String source, String sha256, Gpt2Config config, String dtype) {}
