/**
 * From a token to the parts of the model that wrote it; every effect is measured by an
 * intervention.
 */
@NullMarked
package dev.loupe.interpret.trace;

import org.jspecify.annotations.NullMarked;
