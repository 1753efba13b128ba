/** The hardware seam: the operations that a backend provides. */
@NullMarked
package dev.loupe.ops;

import org.jspecify.annotations.NullMarked;
