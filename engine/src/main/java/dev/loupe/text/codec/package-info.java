/** Between texts and ids: what cuts a text into tokens, and the table of what ids stand for. */
@NullMarked
package dev.loupe.text.codec;

import org.jspecify.annotations.NullMarked;
