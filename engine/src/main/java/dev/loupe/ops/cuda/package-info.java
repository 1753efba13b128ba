/** The operations on an NVIDIA GPU, by Loupe's own kernels. */
@NullMarked
package dev.loupe.ops.cuda;

import org.jspecify.annotations.NullMarked;
