/** The program's side towards who started it: streams, progress, signals and exit codes. */
@NullMarked
package dev.loupe.cli.terminal;

import org.jspecify.annotations.NullMarked;
