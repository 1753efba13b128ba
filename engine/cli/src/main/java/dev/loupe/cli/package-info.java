/** The program: it starts the command that its arguments name, and says why one failed. */
@NullMarked
package dev.loupe.cli;

import org.jspecify.annotations.NullMarked;
