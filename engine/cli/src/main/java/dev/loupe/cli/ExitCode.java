package dev.loupe.cli;

/** What the program exits with, beside 0; {@code loupe --help} lists them. */
final class ExitCode {
  static final int FAILED = 1;
  static final int BAD_USAGE = 2;
  static final int BAD_INPUT = 3;
  static final int NO_BACKEND = 4;
  static final int OUT_OF_MEMORY = 5;

  private ExitCode() {}
}
