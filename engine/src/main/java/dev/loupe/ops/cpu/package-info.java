/** The CPU backend: Vector API kernels and their scalar twins. */
@NullMarked
package dev.loupe.ops.cpu;

import org.jspecify.annotations.NullMarked;
