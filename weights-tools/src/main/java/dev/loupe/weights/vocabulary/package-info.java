/** Tokenizers that come with weights: tokens, merges, special ids. */
@NullMarked
package dev.loupe.weights.vocabulary;

import org.jspecify.annotations.NullMarked;
