/** The GPT-2 forward pass, written once for every backend. */
@NullMarked
package dev.loupe.model;

import org.jspecify.annotations.NullMarked;
