package dev.loupe.cli.terminal;

/** What the program exits with, beside 0; {@code loupe --help} lists them. */
public final class ExitCode {
  public static final int FAILED = 1;
  public static final int BAD_USAGE = 2;
  public static final int BAD_INPUT = 3;
  public static final int NO_BACKEND = 4;
  public static final int OUT_OF_MEMORY = 5;

  private ExitCode() {}
}
