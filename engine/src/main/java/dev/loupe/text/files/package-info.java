/** What the files of a tokenizer say: Hugging Face's, OpenAI's and SentencePiece's. */
@NullMarked
package dev.loupe.text.files;

import org.jspecify.annotations.NullMarked;
