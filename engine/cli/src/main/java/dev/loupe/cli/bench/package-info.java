/** {@code loupe bench}: how fast models and kernels run here. */
@NullMarked
package dev.loupe.cli.bench;

import org.jspecify.annotations.NullMarked;
