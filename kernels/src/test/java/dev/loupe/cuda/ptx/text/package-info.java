/**
 * The words of PTX: tokens, literals, types and operands, and what is thrown where one is wrong.
 */
@NullMarked
package dev.loupe.cuda.ptx.text;

import org.jspecify.annotations.NullMarked;
