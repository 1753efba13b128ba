/** The commands that run a model: to write, to look at what it does, and to serve it. */
@NullMarked
package dev.loupe.cli.run;

import org.jspecify.annotations.NullMarked;
