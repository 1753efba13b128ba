/** How fast a whole model runs, against what this machine can do at best. */
@NullMarked
package dev.loupe.bench;

import org.jspecify.annotations.NullMarked;
