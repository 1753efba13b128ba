/** Conversations as texts: a model's chat template, which is untrusted input, and its limits. */
@NullMarked
package dev.loupe.chat;

import org.jspecify.annotations.NullMarked;
