package dev.loupe.cli.run;

import dev.loupe.Loupe;
import dev.loupe.cli.options.LoupeCommand;
import dev.loupe.cli.options.ModelOptions;
import dev.loupe.cli.options.TextInput;
import dev.loupe.cli.terminal.Interrupt;
import dev.loupe.cli.terminal.Terminal;
import dev.loupe.export.RunJson;
import dev.loupe.generate.BrokenRunException;
import dev.loupe.generate.ContextLengthException;
import dev.loupe.generate.GenerateRequest;
import dev.loupe.generate.Generation;
import dev.loupe.sampling.Sampling;
import dev.loupe.text.Count;
import java.io.IOException;
import java.io.StringWriter;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.concurrent.Callable;
import org.jspecify.annotations.Nullable;
import picocli.CommandLine.ArgGroup;
import picocli.CommandLine.Command;
import picocli.CommandLine.Mixin;
import picocli.CommandLine.Option;
import picocli.CommandLine.ParentCommand;

/** {@code loupe generate}: text to standard output as it is produced. */
@Command(
    name = "generate",
    description = {
      "Continue a text, and show what each head attended to.",
      "The continuation alone goes to standard output."
    },
    parameterListHeading = "%n",
    abbreviateSynopsis = true,
    sortOptions = false,
    footerHeading = "%nExamples:%n",
    footer = {
      "  loupe generate \"ROMEO:\" -n 40 --seed 1",
      "  loupe generate \"ROMEO:\" --greedy --attention run.html",
      "  cat play.txt | loupe generate -m gpt2 --json > run.json"
    })
public final class GenerateCommand implements Callable<Integer> {
  public enum Overflow {
    ERROR,
    SLIDE
  }

  @ParentCommand LoupeCommand parent;
  @Mixin TextInput input;

  @Option(
      names = "-n",
      paramLabel = "N",
      description = "Tokens to write (default: 100, or what the context has room for).")
  @Nullable Integer tokens;

  @Option(
      names = "--samples",
      paramLabel = "N",
      description = "Continuations of the same text (default: 1).")
  int samples = 1;

  @Option(
      names = "--stop",
      paramLabel = "STR",
      description = "Stop before this string; may be repeated.")
  List<String> stops = new ArrayList<>();

  @Option(
      names = "--overflow",
      paramLabel = "O",
      description =
          "When the context is full: error, or slide, which forgets its older half (default: error).")
  Overflow overflow = Overflow.ERROR;

  @Mixin OutputOptions output;

  @ArgGroup(validate = false, order = 1, heading = "%nHow tokens are chosen:%n")
  SamplingOptions sampling = new SamplingOptions();

  @ArgGroup(validate = false, order = 2, heading = "%nAttention maps:%n")
  AttentionOutput attention = new AttentionOutput();

  @ArgGroup(validate = false, order = 3, heading = "%nLogits and residual stream:%n")
  ReadoutOutput readouts = new ReadoutOutput();

  @ArgGroup(validate = false, order = 4, heading = "%nModel:%n")
  ModelOptions model = new ModelOptions();

  @ArgGroup(validate = false, order = 5, heading = "%nHeads that are changed:%n")
  InterventionOptions changes = new InterventionOptions();

  @Override
  public Integer call() throws IOException {
    Terminal terminal = parent.terminal();
    output.check(attention);
    attention.check(false);
    readouts.check(attention.everyFile());
    if (readouts.writes() && overflow == Overflow.SLIDE) {
      throw new IllegalArgumentException(
          "--logits and --hidden are of one pass over the text: leave out --overflow slide");
    }
    Sampling chosen = sampling.sampling();
    GenerateRequest request =
        GenerateRequest.of(input.prompt(terminal))
            .sampling(chosen)
            .interventions(changes.interventions())
            .samples(samples)
            .stops(stops)
            .readAgain(readouts.writes())
            .slide(overflow == Overflow.SLIDE);
    if (tokens != null) {
      request.tokens(tokens);
    }
    if (output.json || attention.writes() || readouts.writes()) {
      request.logprobs(output.logprobs);
    }
    if (attention.writes()) {
      request.attention(attention.selection(!attention.files.isEmpty()));
    }
    try (AttentionOutput files = attention;
        ReadoutOutput passes = readouts) {
      files.open(samples);
      passes.open(samples);
      List<Generation> runs;
      BrokenRunException failure = null;
      boolean interrupted;
      try (Loupe loupe =
              model.open(
                  terminal,
                  output.quiet.set,
                  output.json,
                  request.needsText(),
                  options -> options.expectedTokens(request.expectedTokens()));
          Interrupt interrupt = new Interrupt(terminal)) {
        boolean fileFollows = attention.writes() || readouts.writes();
        runs =
            new RunPrinter(terminal, output, samples, fileFollows, interrupt).run(loupe, request);
        interrupted = interrupt.asked();
        passes.write(loupe, runs, changes.interventions());
      } catch (ContextLengthException e) {
        throw new IllegalArgumentException(e.getMessage() + " (--overflow slide)", e);
      } catch (BrokenRunException e) { // what was made is kept, and the error said at the end
        runs = e.runs();
        interrupted = false;
        failure = e;
      }
      files.write(runs);
      report(terminal, chosen, runs);
      if (failure != null) {
        throw failure;
      }
      return interrupted ? Interrupt.exitCode() : 0;
    }
  }

  private void report(Terminal terminal, Sampling chosen, List<Generation> runs)
      throws IOException {
    if (output.json) {
      for (Generation run : runs) {
        StringWriter json = new StringWriter();
        RunJson.write(run, attention.firstFile(run.sample()), json);
        terminal.print(json.toString());
      }
    }
    if (output.quiet.set) {
      return;
    }
    Generation run = runs.getFirst();
    Generation.Timing timing = run.timing();
    int written = 0;
    for (Generation each : runs) {
      written += each.tokens().size() - each.promptLength();
    }
    terminal.say(
        String.format(
            Locale.ROOT,
            "[read %s in %.0f ms, wrote %d in %.0f ms (%.0f tokens/s) on %s; %s%s]",
            Count.of(timing.prefillTokens(), "token"),
            timing.prefillMs(),
            written,
            timing.decodeMs(),
            written / Math.max(timing.decodeMs(), 1e-3) * 1000,
            run.model().device(),
            chosen.isGreedy() ? "greedy" : "seed " + chosen.seed(),
            run.finish() == Generation.Finish.INTERRUPTED ? "; interrupted" : ""));
    if (run.cropped() > 0) {
      terminal.say(
          run.cropped() == 1
              ? "[the context slid: the first token was forgotten]"
              : "[the context slid: the first %d tokens were forgotten]".formatted(run.cropped()));
    }
    attention.announce(terminal, runs);
    readouts.announce(terminal);
  }
}
