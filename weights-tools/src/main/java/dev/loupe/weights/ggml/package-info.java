/** Files of ggml and llama.cpp: GGML and GGUF, and their quantized blocks. */
@NullMarked
package dev.loupe.weights.ggml;

import org.jspecify.annotations.NullMarked;
