/** What a reader of a format does, and the formats with no package of their own. */
@NullMarked
package dev.loupe.weights.format;

import org.jspecify.annotations.NullMarked;
