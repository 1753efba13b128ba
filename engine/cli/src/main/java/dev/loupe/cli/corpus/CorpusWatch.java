package dev.loupe.cli.corpus;

import dev.loupe.cli.terminal.Interrupt;
import dev.loupe.cli.terminal.ProgressBar;
import dev.loupe.cli.terminal.Terminal;
import dev.loupe.corpus.CorpusJobs;

/** Says what a job says. */
final class CorpusWatch implements CorpusJobs.Listener, AutoCloseable {
  private final Terminal terminal;
  private final boolean quiet;
  final Interrupt interrupt;
  private ProgressBar bar;
  private final String label;

  CorpusWatch(Terminal terminal, boolean quiet, String label) {
    this.terminal = terminal;
    this.quiet = quiet;
    this.label = label;
    interrupt = new Interrupt(terminal);
    bar = new ProgressBar(terminal, !quiet, label);
  }

  @Override
  public synchronized boolean progress(long done, long total) {
    bar.update(done, total);
    return !interrupt.asked();
  }

  @Override
  public synchronized void note(String sentence) {
    if (!quiet) {
      bar.clear();
      terminal.say("[%s]".formatted(sentence));
      bar = new ProgressBar(terminal, true, label);
    }
  }

  @Override
  public void close() {
    bar.clear();
    interrupt.close();
  }
}
