/**
 * Why a model says what it says: cached activations, what each head does, the logit lens, and
 * comparisons with heads ablated.
 */
@NullMarked
package dev.loupe.interpret;

import org.jspecify.annotations.NullMarked;
