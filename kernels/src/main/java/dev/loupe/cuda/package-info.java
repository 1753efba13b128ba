/**
 * The CUDA side: finds the driver and the cards, and launches the kernels.
 *
 * <p>Refusals are of two kinds, each one sentence with its numbers. {@link
 * IllegalArgumentException}: what the caller passed is wrong, found before anything is launched (a
 * shape or an element that a kernel does not take, a variant that the card cannot run, a buffer
 * that is null, freed, too small, misaligned or another GPU's). {@link
 * dev.loupe.cuda.driver.GpuException}: there is no usable driver or card, memory ran out, the
 * driver reported an error, or the GPU was closed.
 */
@NullMarked
package dev.loupe.cuda;

import org.jspecify.annotations.NullMarked;
