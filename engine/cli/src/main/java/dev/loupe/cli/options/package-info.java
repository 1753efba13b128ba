/** Options that several commands have, and the models that they name. */
@NullMarked
package dev.loupe.cli.options;

import org.jspecify.annotations.NullMarked;
