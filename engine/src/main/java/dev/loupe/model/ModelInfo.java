package dev.loupe.model;

import dev.loupe.weights.config.Gpt2Config;
import java.util.Optional;

/**
 * Which model a run came from, and what it ran on.
 *
 * @param source where it was opened from, as the user wrote it
 * @param sha256 hash of the weights in hex, where it was asked for
 * @param config the shape of the model
 * @param dtype element type in which the weights are stored, e.g. {@code f16}
 * @param backend {@code cpu} or {@code cuda}
 * @param device what it runs on, in words
 * @param loadMs milliseconds it took to open
 */
public record ModelInfo(
    String source,
    Optional<String> sha256,
    Gpt2Config config,
    String dtype,
    String backend,
    String device,
    double loadMs) {}
