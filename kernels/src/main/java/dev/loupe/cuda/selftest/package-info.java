/**
 * Which kernels a card can be trusted with: each is compared with plain loops in a process of its
 * own, timed, and the verdicts are kept for the next start.
 */
@NullMarked
package dev.loupe.cuda.selftest;

import org.jspecify.annotations.NullMarked;
