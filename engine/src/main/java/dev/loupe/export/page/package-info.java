/**
 * What pages are made of: the modules and colours that they share, and what a browser lets them do.
 */
@NullMarked
package dev.loupe.export.page;

import org.jspecify.annotations.NullMarked;
