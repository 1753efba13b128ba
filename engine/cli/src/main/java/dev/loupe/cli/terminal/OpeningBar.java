package dev.loupe.cli.terminal;

import dev.loupe.cuda.selftest.FirstContact;

/**
 * Shows how far opening a model has come: its loading and, the first time on a card, the test of
 * the kernels before it, which is also said in a line where there is no terminal.
 */
public final class OpeningBar implements FirstContact.Listener, AutoCloseable {
  private final Terminal terminal;
  private final boolean enabled;
  private ProgressBar bar;

  /**
   * @param enabled false says and shows nothing
   */
  public OpeningBar(Terminal terminal, boolean enabled) {
    this.terminal = terminal;
    this.enabled = enabled;
    this.bar = new ProgressBar(terminal, enabled, "loading");
  }

  @Override
  public void begins(String sentence) {
    bar.clear();
    if (enabled) {
      terminal.say("[%s]".formatted(sentence));
    }
    bar = new ProgressBar(terminal, enabled, "testing kernels");
  }

  @Override
  public void tried(int done, int trials) {
    bar.update(done, trials);
  }

  @Override
  public void ends() {
    bar.clear();
    bar = new ProgressBar(terminal, enabled, "loading");
  }

  public void loaded(long done, long total) {
    bar.update(done, total);
  }

  /** Takes it away. */
  @Override
  public void close() {
    bar.clear();
  }
}
