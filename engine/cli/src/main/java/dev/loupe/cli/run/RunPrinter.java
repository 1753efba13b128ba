package dev.loupe.cli.run;

import dev.loupe.Loupe;
import dev.loupe.cli.terminal.Interrupt;
import dev.loupe.cli.terminal.ProgressBar;
import dev.loupe.cli.terminal.Terminal;
import dev.loupe.generate.BrokenRunException;
import dev.loupe.generate.GenerateRequest;
import dev.loupe.generate.Generation;
import dev.loupe.generate.Token;
import java.util.List;

/**
 * Prints the text of a run while it is written, or the ids where the model's tokens are no text,
 * with commas between them, as --ids takes them. Of several samples the first streams; the others,
 * which are written at the same time, follow when all have ended.
 */
final class RunPrinter implements GenerateRequest.Listener {
  private static final int CONTROL_PICTURES = 0x2400; // the Unicode block that names 00 to 1F

  private final Terminal terminal;
  private final boolean fileFollows;
  private final int samples;
  private final Interrupt interrupt;
  private final ProgressBar progress;
  private boolean printing;
  private boolean endsLine = true;
  private boolean asIds;
  private boolean hasIds; // an id was printed on this line

  /**
   * @param fileFollows whether the run is wanted to its end even when nobody reads its text
   */
  RunPrinter(
      Terminal terminal,
      OutputOptions output,
      int samples,
      boolean fileFollows,
      Interrupt interrupt) {
    this.terminal = terminal;
    this.printing = !output.json;
    this.samples = samples;
    this.fileFollows = fileFollows;
    this.interrupt = interrupt;
    this.progress = new ProgressBar(terminal, !output.quiet.set, "reading");
  }

  List<Generation> run(Loupe loupe, GenerateRequest request) {
    asIds = loupe.tokenizer().whyNoText().isPresent();
    try {
      List<Generation> runs = loupe.run(request.listener(this));
      others(runs);
      return runs;
    } catch (BrokenRunException e) {
      others(e.runs());
      throw e;
    } finally {
      progress.clear();
      if (terminal.outIsTerminal()) {
        endLine();
      }
    }
  }

  /** The samples that were not printed while they were written. */
  private void others(List<Generation> runs) {
    for (Generation run : runs.subList(1, runs.size())) {
      heading(run.sample());
      print(run.text());
      run.tokens().stream().filter(Token::generated).forEach(token -> printId(token.id()));
    }
    if (samples > 1) {
      endLine();
    }
  }

  @Override
  public boolean reading(int layersDone, int layers) {
    progress.update(layersDone, layers);
    if (layersDone == layers) {
      progress.clear();
      interrupt.onlyAsk(); // from here on there is something to keep
      if (samples > 1) {
        heading(0);
      }
    }
    return true;
  }

  @Override
  public void token(int sample, int id, double logprob) {
    if (sample == 0) {
      printId(id);
    }
  }

  private void printId(int id) {
    if (asIds) {
      print((hasIds ? "," : "") + id);
      hasIds = true;
    }
  }

  @Override
  public boolean text(int sample, String piece) {
    if (sample == 0) {
      print(piece);
    }
    return !interrupt.asked();
  }

  private void heading(int sample) {
    endLine();
    print("--- %d of %d ---\n".formatted(sample + 1, samples));
    hasIds = false;
  }

  private void endLine() {
    if (!endsLine) {
      print("\n");
    }
  }

  private void print(String text) {
    if (!printing || text.isEmpty()) {
      return;
    }
    try {
      terminal.print(terminal.outIsTerminal() ? harmless(text) : text);
    } catch (Terminal.BrokenPipe e) {
      printing = false;
      if (!fileFollows) {
        throw e;
      }
    }
    endsLine = text.endsWith("\n");
  }

  /** Control characters as their pictures: a model may write those that reset a terminal. */
  static String harmless(String text) {
    StringBuilder shown = new StringBuilder();
    for (int i = 0; i < text.length(); i++) {
      char c = text.charAt(i);
      if (c == '\n' || c == '\t' || !Character.isISOControl(c)) {
        shown.append(c);
      } else {
        shown.append(c < ' ' ? (char) (CONTROL_PICTURES + c) : '\u2421'); // of DEL, for C1 too
      }
    }
    return shown.toString();
  }
}
