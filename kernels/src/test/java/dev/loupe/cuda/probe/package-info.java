/**
 * Probes of the device code's primitives, and the kernels' PTX, run on the emulator and by the
 * interpreter of {@code dev.loupe.cuda.ptx}.
 */
@NullMarked
package dev.loupe.cuda.probe;

import org.jspecify.annotations.NullMarked;
