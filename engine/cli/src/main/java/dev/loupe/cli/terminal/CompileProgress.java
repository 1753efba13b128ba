package dev.loupe.cli.terminal;

import dev.loupe.cuda.driver.KernelCompiler;

/**
 * Says on standard error that the driver compiles kernels, once that has taken a moment: on a
 * terminal a line for each kernel that goes when the next one comes, elsewhere a single line.
 */
public final class CompileProgress implements KernelCompiler.Listener {
  private static final double SHOW_AFTER_MILLIS = 300;
  private static final String CLEAR = "\r\u001b[K";

  private final Terminal terminal;
  private boolean said;

  CompileProgress(Terminal terminal) {
    this.terminal = terminal;
  }

  /** Shows what is compiled from now on. */
  public static void show(Terminal terminal) {
    KernelCompiler.listen(new CompileProgress(terminal));
  }

  @Override
  public void compiling(String kernel, int number, double milliseconds, boolean kept) {
    if (milliseconds < SHOW_AFTER_MILLIS) {
      return; // it had kept them
    }
    String rest =
        kept
            ? "it keeps them for the next start"
            : "set CUDA_CACHE_PATH to a folder that can be written, and it keeps them";
    if (terminal.errIsTerminal()) {
      terminal.sayPart(
          CLEAR
              + "[the driver compiles kernels for this card: %s, number %d; %s]"
                  .formatted(kernel, number, rest));
    } else if (!said) {
      terminal.say("[the driver compiles kernels for this card; %s]".formatted(rest));
    }
    said = true;
  }

  @Override
  public void compiled() {
    if (said && terminal.errIsTerminal()) {
      terminal.sayPart(CLEAR);
    }
  }
}
