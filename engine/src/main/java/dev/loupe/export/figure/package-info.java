/** Figures as SVG, drawn without a script: bars and curves on log scales. */
@NullMarked
package dev.loupe.export.figure;

import org.jspecify.annotations.NullMarked;
