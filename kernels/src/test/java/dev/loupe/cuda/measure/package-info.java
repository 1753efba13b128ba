/** What kernels cost: counted on the emulator, timed on a card, and shown in tables. */
@NullMarked
package dev.loupe.cuda.measure;

import org.jspecify.annotations.NullMarked;
