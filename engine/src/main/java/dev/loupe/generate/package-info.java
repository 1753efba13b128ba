/**
 * Text from a model: what is asked ({@link GenerateRequest}), the loop that reads prompts and
 * writes tokens, and what comes of it ({@link Generation}).
 */
@NullMarked
package dev.loupe.generate;

import org.jspecify.annotations.NullMarked;
