package dev.loupe.cli;

import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.io.OutputStreamWriter;
import java.io.PrintStream;
import java.io.PrintWriter;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.ValueLayout;
import java.lang.invoke.MethodHandle;
import java.nio.charset.StandardCharsets;

/**
 * The three streams of a command. Standard output carries results alone, in UTF-8 whatever the
 * locale; everything said to a person goes to standard error.
 */
final class Terminal {
  /** Nobody reads standard output any more, as in {@code loupe generate ... | head -1}. */
  static final class BrokenPipe extends RuntimeException {
    private static final long serialVersionUID = 1L;

    BrokenPipe(IOException cause) {
      super(cause);
    }
  }

  private static final int STDIN = 0;
  private static final int STDOUT = 1;
  private static final int STDERR = 2;

  private final InputStream in;
  private final OutputStream out;
  private final PrintStream err;
  private final boolean inIsTerminal;
  private final boolean outIsTerminal;
  private final boolean errIsTerminal;

  private Terminal(
      InputStream in,
      OutputStream out,
      PrintStream err,
      boolean inIsTerminal,
      boolean outIsTerminal,
      boolean errIsTerminal) {
    this.in = in;
    this.out = out;
    this.err = err;
    this.inIsTerminal = inIsTerminal;
    this.outIsTerminal = outIsTerminal;
    this.errIsTerminal = errIsTerminal;
  }

  /** The process's own streams; unlike System.out, output reports a broken pipe. */
  static Terminal system() {
    return new Terminal(
        System.in,
        new FileOutputStream(FileDescriptor.out),
        new PrintStream(new FileOutputStream(FileDescriptor.err), true, StandardCharsets.UTF_8),
        isTerminal(STDIN),
        isTerminal(STDOUT),
        isTerminal(STDERR));
  }

  /** Streams of a test, none of them a terminal. */
  static Terminal of(InputStream in, OutputStream out, OutputStream err) {
    return new Terminal(
        in, out, new PrintStream(err, true, StandardCharsets.UTF_8), false, false, false);
  }

  private static boolean isTerminal(int descriptor) {
    Linker linker = Linker.nativeLinker();
    return linker
        .defaultLookup()
        .find("isatty")
        .map(
            symbol -> {
              MethodHandle isatty =
                  linker.downcallHandle(
                      symbol, FunctionDescriptor.of(ValueLayout.JAVA_INT, ValueLayout.JAVA_INT));
              try {
                return (int) isatty.invokeExact(descriptor) == 1;
              } catch (Throwable e) { // a native call declares it; isatty throws nothing
                return false;
              }
            })
        .orElse(false);
  }

  boolean inIsTerminal() {
    return inIsTerminal;
  }

  boolean outIsTerminal() {
    return outIsTerminal;
  }

  boolean errIsTerminal() {
    return errIsTerminal;
  }

  /** Columns of the terminal; 80 where there is none. The launcher passes COLUMNS on. */
  int columns() {
    String columns = System.getenv("COLUMNS");
    try {
      return columns == null ? 80 : Math.clamp(Integer.parseInt(columns.strip()), 20, 1000);
    } catch (NumberFormatException e) {
      return 80;
    }
  }

  /**
   * Prints to standard output at once.
   *
   * @throws BrokenPipe if nobody reads it any more, or it can't be written
   */
  void print(String text) {
    try {
      out.write(text.getBytes(StandardCharsets.UTF_8));
      out.flush();
    } catch (IOException e) {
      throw new BrokenPipe(e);
    }
  }

  /** Standard output for those who need a writer: help texts. */
  PrintWriter writer() {
    return new PrintWriter(new OutputStreamWriter(out, StandardCharsets.UTF_8), true);
  }

  /** A line for the person at the terminal. */
  void say(String line) {
    err.println(line);
  }

  /** Part of a line for the person at the terminal. */
  void sayPart(String text) {
    err.print(text);
    err.flush();
  }

  /** All of standard input. */
  byte[] readAll() throws IOException {
    return in.readAllBytes();
  }
}
