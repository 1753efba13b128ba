/** The shape of a GPT-2: its config, and the names and shapes of its tensors. */
@NullMarked
package dev.loupe.weights.config;

import org.jspecify.annotations.NullMarked;
