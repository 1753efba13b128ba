/** Files in and out: mapped and bounded reading, strict JSON, writing whole or not at all. */
@NullMarked
package dev.loupe.weights.io;

import org.jspecify.annotations.NullMarked;
