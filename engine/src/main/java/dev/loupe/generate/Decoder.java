package dev.loupe.generate;

import java.util.List;

/** Chooses the next token of each sample, step by step. */
interface Decoder extends AutoCloseable {
  /**
   * One step: reads the last token of the samples {@code read}, none in the first step, and appends
   * the next one to each of {@code write}.
   *
   * @param read the samples of {@code write} first, in their order
   */
  void next(List<Sample> read, List<Sample> write);

  @Override
  void close();
}
