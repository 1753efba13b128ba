/** The CUDA side: finds the driver and the cards. */
@NullMarked
package dev.loupe.kernels;

import org.jspecify.annotations.NullMarked;
