package dev.loupe.export;

import dev.loupe.generate.Generation;
import java.io.IOException;
import java.nio.file.Path;

/**
 * The kinds of file that statistics of attention can be written to, each known by the ending of its
 * name.
 */
public enum StatisticsFormat {
  /**
   * Arrays for numpy: entropy, mean_distance, top_keys, top_weights, those of heads, and what they
   * are of.
   */
  NPZ(StatisticsExport::npz),
  /** One object, the same as {@code --json} prints, with the numbers in it. */
  JSON(RunJson::writeWithStatistics),
  /** One line per layer, head and query; without rollout. */
  CSV(StatisticsExport::csv);

  @FunctionalInterface
  private interface Exporter {
    void write(Generation run, Path file) throws IOException;
  }

  private final Exporter exporter;

  StatisticsFormat(Exporter exporter) {
    this.exporter = exporter;
  }

  /**
   * The format that the ending of {@code file} names, in upper or lower case.
   *
   * @throws IllegalArgumentException if it names none; the message lists the endings
   */
  public static StatisticsFormat of(Path file) {
    return Endings.named(file, values(), "statistics of attention");
  }

  /**
   * Writes the statistics of {@code run} to {@code file}, replacing what was there. A failure
   * leaves a part of it behind: give a temporary file and rename it afterwards.
   *
   * @throws IllegalStateException if the run kept none
   */
  public void write(Generation run, Path file) throws IOException {
    if (run.statistics().isEmpty()) {
      throw new IllegalStateException("this run kept no statistics: ask for a selection of them");
    }
    exporter.write(run, file);
  }
}
