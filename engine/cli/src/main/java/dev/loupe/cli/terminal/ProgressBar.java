package dev.loupe.cli.terminal;

import java.time.Duration;

/**
 * One line on standard error that shows how far a long piece of work has come. It appears when the
 * work has taken a moment, even if the first news of it takes longer.
 */
public final class ProgressBar {
  private static final Duration SHOW_AFTER = Duration.ofMillis(300);
  private static final Duration REDRAW = Duration.ofMillis(100);
  private static final int WIDTH = 24;

  private final Terminal terminal;
  private final String label;
  private final long start = System.nanoTime();
  private boolean enabled;
  private long drawn;
  private boolean visible;

  /**
   * @param enabled false shows nothing; nothing is shown either where standard error is no terminal
   */
  public ProgressBar(Terminal terminal, boolean enabled, String label) {
    this.terminal = terminal;
    this.enabled = enabled && terminal.errIsTerminal();
    this.label = label;
    if (this.enabled) {
      Thread.startVirtualThread(this::appear);
    }
  }

  private void appear() {
    try {
      Thread.sleep(SHOW_AFTER);
    } catch (InterruptedException e) {
      return; // nobody does that
    }
    synchronized (this) {
      if (!visible) {
        update(0, 1);
      }
    }
  }

  public synchronized void update(long done, long total) {
    long now = System.nanoTime();
    if (!enabled
        || now - start < SHOW_AFTER.toNanos()
        || (visible && now - drawn < REDRAW.toNanos() && done < total)) {
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

  /** Takes the line away for good, and the ^C that a terminal may have added to it. */
  public synchronized void clear() {
    enabled = false;
    if (visible) {
      terminal.sayPart("\r" + " ".repeat(label.length() + WIDTH + 10) + "\r");
      visible = false;
    }
  }
}
