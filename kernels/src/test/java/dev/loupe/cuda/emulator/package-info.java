/** What tests of several packages share: the emulated driver, its scripts, and comparisons. */
@NullMarked
package dev.loupe.cuda.emulator;

import org.jspecify.annotations.NullMarked;
