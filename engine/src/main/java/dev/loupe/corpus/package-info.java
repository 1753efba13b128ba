/** Statistics of heads over many documents: what is asked for, and the report on it. */
@NullMarked
package dev.loupe.corpus;

import org.jspecify.annotations.NullMarked;
