/** Text to token ids and back. */
@NullMarked
package dev.loupe.text;

import org.jspecify.annotations.NullMarked;
