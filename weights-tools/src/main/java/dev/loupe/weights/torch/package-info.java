/** PyTorch's files: pickles in zip archives, and nanoGPT's layout in them. */
@NullMarked
package dev.loupe.weights.torch;

import org.jspecify.annotations.NullMarked;
