package dev.loupe.cli.options;

import dev.loupe.Backend;
import picocli.CommandLine.Option;

/**
 * What computes. A group of options takes no mixins, so that groups inherit these; the numbers are
 * their places among a group's own.
 */
public class ProcessorOptions {
  @Option(
      names = "--backend",
      order = 10,
      paramLabel = "B",
      description = "auto, cpu or cuda (default: auto).")
  public Backend backend = Backend.AUTO;

  @Option(
      names = "--device",
      order = 11,
      paramLabel = "N",
      description = "Which GPU, from 0 (default: 0).")
  public int device;

  @Option(
      names = "--threads",
      order = 30,
      paramLabel = "N",
      description = "CPU threads (default: all processors).")
  public int threads;

  @Option(
      names = "--vector-bits",
      order = 31,
      paramLabel = "N",
      description = "CPU vectors of 128, 256 or 512 bits (default: as Java prefers here).")
  public int vectorBits;
}
