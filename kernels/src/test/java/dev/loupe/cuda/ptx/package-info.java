/**
 * A second witness for the device code: an interpreter of PTX, written from the text of NVIDIA's
 * PTX ISA manual. It runs what nvcc made of the kernels and shares nothing with the emulator, which
 * runs what g++ makes of their sources and never sees the inline PTX of {@code gpu.cuh}.
 *
 * <p>{@link dev.loupe.cuda.ptx.Module} is a parsed file, {@link dev.loupe.cuda.ptx.Machine} runs
 * its entries on a {@link dev.loupe.cuda.ptx.GlobalMemory}. An instruction, a modifier or a
 * directive that is not known is an error; nothing is skipped.
 */
@NullMarked
package dev.loupe.cuda.ptx;

import org.jspecify.annotations.NullMarked;
