/** What each idea in a kernel is worth: ways to compute one operation, held against each other. */
@NullMarked
package dev.loupe.bench.kernel;

import org.jspecify.annotations.NullMarked;
