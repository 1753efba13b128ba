/**
 * Texts that a model writes for clients, and its tokenizer for those that have none, as OpenAI and
 * vLLM have them.
 */
@NullMarked
package dev.loupe.serve.completions;

import org.jspecify.annotations.NullMarked;
