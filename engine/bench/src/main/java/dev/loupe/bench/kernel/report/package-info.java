/** What a comparison of kernels shows: as text, JSON, tables and a page with plots. */
@NullMarked
package dev.loupe.bench.kernel.report;

import org.jspecify.annotations.NullMarked;
