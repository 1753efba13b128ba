/** From logits to the next token. */
@NullMarked
package dev.loupe.sampling;

import org.jspecify.annotations.NullMarked;
