/**
 * The families of kernels: each class checks its arguments and launches the variants of one source
 * file; {@code KernelCatalogue} lists them all.
 */
@NullMarked
package dev.loupe.cuda.kernels;

import org.jspecify.annotations.NullMarked;
