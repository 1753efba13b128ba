/** Corpora on Apache Spark: documents are prepared, read by a model, and reported on. */
@org.jspecify.annotations.NullMarked
package dev.loupe.spark;
