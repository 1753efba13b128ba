/** The command line. */
@NullMarked
package dev.loupe.cli;

import org.jspecify.annotations.NullMarked;
