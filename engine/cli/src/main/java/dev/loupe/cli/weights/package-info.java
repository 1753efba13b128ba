/** {@code loupe weights}: the files of models. */
@NullMarked
package dev.loupe.cli.weights;

import org.jspecify.annotations.NullMarked;
