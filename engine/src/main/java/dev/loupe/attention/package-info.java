/** Attention maps on their way from the model to whoever asked for them. */
@NullMarked
package dev.loupe.attention;

import org.jspecify.annotations.NullMarked;
