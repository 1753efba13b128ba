/** Traces for people and for programs. */
@NullMarked
package dev.loupe.export.trace;

import org.jspecify.annotations.NullMarked;
