/** Tensors as they are stored, and the types of their elements. */
@NullMarked
package dev.loupe.weights.tensor;

import org.jspecify.annotations.NullMarked;
