package dev.loupe.cli;

/** One line on standard error that shows how far a long piece of work has come. */
final class ProgressBar {
  private static final long SHOW_AFTER = 300_000_000; // ns; shorter work needs no bar
  private static final long REDRAW = 100_000_000;
  private static final int WIDTH = 24;

  private final Terminal terminal;
  private final boolean enabled;
  private final String label;
  private final long start = System.nanoTime();
  private long drawn;
  private boolean visible;

  /**
   * @param enabled false shows nothing; nothing is shown either where standard error is no terminal
   */
  ProgressBar(Terminal terminal, boolean enabled, String label) {
    this.terminal = terminal;
    this.enabled = enabled && terminal.errIsTerminal();
    this.label = label;
  }

  void update(long done, long total) {
    long now = System.nanoTime();
    if (!enabled || now - start < SHOW_AFTER || (visible && now - drawn < REDRAW && done < total)) {
      return;
    }
    visible = true;
    drawn = now;
    int filled = total <= 0 ? 0 : (int) (WIDTH * done / total);
    long percent = total <= 0 ? 0 : 100 * done / total;
    terminal.sayPart(
        "\r%s [%s%s] %3d%%"
            .formatted(label, "#".repeat(filled), ".".repeat(WIDTH - filled), percent));
  }

  /** Takes the line away. */
  void clear() {
    if (visible) {
      terminal.sayPart("\r" + " ".repeat(label.length() + WIDTH + 8) + "\r");
      visible = false;
    }
  }
}
