/** GPT-2 checkpoints: formats in, tensors by their Hugging Face names out. */
@NullMarked
package dev.loupe.weights;

import org.jspecify.annotations.NullMarked;
