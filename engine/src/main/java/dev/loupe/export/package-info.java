/** Attention maps as files: npz, json, csv, png, html. */
@NullMarked
package dev.loupe.export;

import org.jspecify.annotations.NullMarked;
