package dev.loupe.cli.terminal;

import dev.loupe.export.TerminalText;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.io.PrintStream;
import java.io.UncheckedIOException;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.ValueLayout;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import org.jspecify.annotations.Nullable;

/**
 * The three streams of a command. Standard output carries results alone, in UTF-8 whatever the
 * locale; everything said to a person goes to standard error.
 */
public final class Terminal {
  /** Nobody reads standard output any more, as in {@code loupe generate ... | head -1}. */
  public static final class BrokenPipe extends RuntimeException {
    private static final long serialVersionUID = 1L;

    BrokenPipe(IOException cause) {
      super(cause);
    }
  }

  private static final int DEFAULT_COLUMNS = 80;
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
  public static Terminal system() {
    restoreStandardError();
    return new Terminal(
        System.in,
        new FileOutputStream(FileDescriptor.out),
        new PrintStream(new FileOutputStream(FileDescriptor.err), true, StandardCharsets.UTF_8),
        isTerminal(STDIN),
        isTerminal(STDOUT),
        isTerminal(STDERR));
  }

  /** Streams of a test, all of them terminals or none. */
  public static Terminal of(InputStream in, OutputStream out, OutputStream err, boolean terminals) {
    return new Terminal(
        in,
        out,
        new PrintStream(err, true, StandardCharsets.UTF_8),
        terminals,
        terminals,
        terminals);
  }

  private static boolean isTerminal(int descriptor) {
    return call("isatty", descriptor) == 1;
  }

  /**
   * The launcher drops a line that Java writes at its start, and says here which descriptor is the
   * real standard error.
   */
  private static void restoreStandardError() {
    String real = System.getenv("LOUPE_STDERR");
    if (real != null && real.matches("[0-9]{1,3}")) {
      call("dup2", Integer.parseInt(real), STDERR);
    }
  }

  /** The result of a function of the C library, -1 where there is no such function. */
  private static int call(String function, Object... arguments) {
    ValueLayout[] layouts = new ValueLayout[arguments.length];
    Arrays.fill(layouts, ValueLayout.JAVA_INT);
    Linker linker = Linker.nativeLinker();
    return linker
        .defaultLookup()
        .find(function)
        .map(
            symbol -> {
              try {
                return (int)
                    linker
                        .downcallHandle(
                            symbol, FunctionDescriptor.of(ValueLayout.JAVA_INT, layouts))
                        .invokeWithArguments(arguments);
              } catch (Throwable e) { // a native call declares it; these throw nothing
                return -1;
              }
            })
        .orElse(-1);
  }

  public boolean inIsTerminal() {
    return inIsTerminal;
  }

  public boolean outIsTerminal() {
    return outIsTerminal;
  }

  /** How wide a report may be: 80 where standard output is no terminal. */
  public int outColumns() {
    return outIsTerminal ? columns() : 80;
  }

  boolean errIsTerminal() {
    return errIsTerminal;
  }

  /** Columns of the terminal; 80 where there is none. The launcher passes COLUMNS on. */
  public int columns() {
    return columns(System.getenv("COLUMNS"));
  }

  static int columns(@Nullable String variable) {
    try {
      int columns = variable == null ? 0 : Integer.parseInt(variable.strip());
      return columns < 1 ? DEFAULT_COLUMNS : Math.clamp(columns, 20, 1000);
    } catch (NumberFormatException e) {
      return DEFAULT_COLUMNS;
    }
  }

  /**
   * Prints to standard output at once.
   *
   * @throws BrokenPipe if nobody reads it any more
   * @throws UncheckedIOException if it can't be written for another reason, which the message says
   */
  public void print(String text) {
    try {
      out.write(text.getBytes(StandardCharsets.UTF_8));
      out.flush();
    } catch (IOException e) {
      String reason = String.valueOf(e.getMessage());
      // the system's words, as Java keeps no error number; the second of a terminal that was closed
      if (reason.contains("Broken pipe")
          || (outIsTerminal && reason.contains("Input/output error"))) {
        throw new BrokenPipe(e);
      }
      throw new UncheckedIOException(
          "standard output can't be written: " + reason, new IOException(reason, e));
    }
  }

  /** A line for the person at the terminal, {@linkplain TerminalText#sentence without tricks}. */
  public void say(String line) {
    err.println(TerminalText.sentence(line));
  }

  /** Part of a line for the person at the terminal. */
  void sayPart(String text) {
    err.print(text);
    err.flush();
  }

  /**
   * All of standard input.
   *
   * @throws InputException if it goes on after {@code most} bytes
   */
  public byte[] readAll(int most) throws IOException {
    byte[] all = in.readNBytes(most);
    if (all.length == most && in.read() >= 0) {
      throw new InputException(
          "standard input has more than %d bytes, too many for a text".formatted(most));
    }
    return all;
  }
}
