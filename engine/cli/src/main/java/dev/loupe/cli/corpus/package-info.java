/** {@code loupe corpus}: heads over many documents. */
@NullMarked
package dev.loupe.cli.corpus;

import org.jspecify.annotations.NullMarked;
