package dev.loupe.cli;

import dev.loupe.Generation;
import dev.loupe.Loupe;
import dev.loupe.Request;
import java.util.List;

/**
 * Prints the text of a run while it is written. Of several samples the first streams; the others,
 * which are written at the same time, follow when all have ended.
 */
final class RunPrinter implements Request.Listener {
  private final Terminal terminal;
  private final boolean printing;
  private final int samples;
  private final Interrupt interrupt;
  private final ProgressBar progress;
  private boolean endsLine = true;

  RunPrinter(Terminal terminal, OutputOptions output, int samples, Interrupt interrupt) {
    this.terminal = terminal;
    this.printing = !output.json;
    this.samples = samples;
    this.interrupt = interrupt;
    this.progress = new ProgressBar(terminal, !output.quiet, "reading");
  }

  List<Generation> run(Loupe loupe, Request request) {
    if (printing && samples > 1) {
      print("--- 1 of %d ---\n".formatted(samples));
    }
    List<Generation> runs = loupe.run(request.listener(this));
    progress.clear();
    if (printing) {
      for (Generation run : runs.subList(1, runs.size())) {
        endLine();
        print("--- %d of %d ---\n%s".formatted(run.sample() + 1, samples, run.text()));
      }
      if (samples > 1 || terminal.outIsTerminal()) {
        endLine();
      }
    }
    return runs;
  }

  @Override
  public boolean reading(int layersDone, int layers) {
    progress.update(layersDone, layers);
    if (layersDone == layers) {
      progress.clear();
    }
    return !interrupt.asked();
  }

  @Override
  public boolean text(int sample, String piece) {
    if (printing && sample == 0) {
      print(piece);
    }
    return !interrupt.asked();
  }

  private void endLine() {
    if (!endsLine) {
      print("\n");
    }
  }

  private void print(String text) {
    if (!text.isEmpty()) {
      terminal.print(text);
      endsLine = text.endsWith("\n");
    }
  }
}
