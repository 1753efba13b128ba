/** Models by their names on a hub: fetched, checked, and found again on this machine. */
@NullMarked
package dev.loupe.hub;

import org.jspecify.annotations.NullMarked;
