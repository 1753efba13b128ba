/** What a program that embeds Loupe uses: open a model, generate, read attention. */
@NullMarked
package dev.loupe;

import org.jspecify.annotations.NullMarked;
