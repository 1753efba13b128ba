package dev.loupe.cli;

import dev.loupe.Generation;
import dev.loupe.Loupe;
import dev.loupe.Request;
import dev.loupe.export.RunJson;
import dev.loupe.sampling.Sampling;
import java.io.IOException;
import java.io.StringWriter;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.concurrent.Callable;
import org.jspecify.annotations.Nullable;
import picocli.CommandLine.Command;
import picocli.CommandLine.Mixin;
import picocli.CommandLine.Option;
import picocli.CommandLine.ParentCommand;

/** {@code loupe generate}: text to standard output as it is produced. */
@Command(
    name = "generate",
    description = "Continue a text, and show what each head attended to.",
    mixinStandardHelpOptions = true)
final class GenerateCommand implements Callable<Integer> {
  enum Overflow {
    ERROR,
    SLIDE
  }

  @ParentCommand Main main;
  @Mixin ModelOptions model;
  @Mixin TextInput input;
  @Mixin SamplingOptions sampling;
  @Mixin AttentionOutput attention;
  @Mixin OutputOptions output;

  @Option(
      names = "-n",
      paramLabel = "N",
      description = "Tokens to write (default: 100, or what the context has room for).")
  @Nullable Integer tokens;

  @Option(
      names = "--samples",
      paramLabel = "N",
      description = "Continuations of the same text (default: 1).",
      defaultValue = "1")
  int samples;

  @Option(
      names = "--stop",
      paramLabel = "STR",
      description = "End before this string appears; may be repeated.")
  List<String> stops = new ArrayList<>();

  @Option(
      names = "--logprobs",
      paramLabel = "K",
      description = "With --json: the K likeliest tokens at each place (default: 0).",
      defaultValue = "0")
  int logprobs;

  @Option(
      names = "--overflow",
      paramLabel = "error|slide",
      description = "When the context is full: refuse, or forget its older half (default: error).")
  Overflow overflow = Overflow.ERROR;

  @Override
  public Integer call() throws IOException {
    Terminal terminal = main.terminal();
    Sampling chosen = sampling.sampling();
    Request request =
        input
            .request(terminal)
            .sampling(chosen)
            .samples(samples)
            .stops(stops)
            .slide(overflow == Overflow.SLIDE);
    if (tokens != null) {
      request.tokens(tokens);
    }
    if (output.json) {
      request.logprobs(logprobs);
    }
    if (!attention.files.isEmpty()) {
      request.attention(attention.selection());
    }
    try (AttentionOutput files = attention) {
      files.open(samples);
      List<Generation> runs;
      boolean interrupted;
      try (Loupe loupe = model.open(output.json);
          Interrupt interrupt = new Interrupt()) {
        runs = new RunPrinter(terminal, output, samples, interrupt).run(loupe, request);
        interrupted = interrupt.asked();
      }
      files.write(runs);
      report(terminal, chosen, runs);
      return interrupted ? Interrupt.EXIT_CODE : 0;
    }
  }

  private void report(Terminal terminal, Sampling chosen, List<Generation> runs)
      throws IOException {
    if (output.json) {
      for (Generation run : runs) {
        StringWriter json = new StringWriter();
        RunJson.write(run, attention.firstFile(), json);
        terminal.print(json.toString());
      }
    }
    if (output.quiet) {
      return;
    }
    Generation run = runs.getFirst();
    Generation.Timing timing = run.timing();
    terminal.say(
        String.format(
            Locale.ROOT,
            "[read %d tokens in %.0f ms, wrote %d in %.0f ms (%.0f tokens/s) on %s; %s]",
            timing.prefillTokens(),
            timing.prefillMs(),
            timing.decodeTokens() * runs.size(),
            timing.decodeMs(),
            timing.decodeTokens() * runs.size() / Math.max(timing.decodeMs(), 1e-3) * 1000,
            run.model().device(),
            chosen.isGreedy() ? "greedy" : "seed " + chosen.seed()));
    if (run.cropped() > 0) {
      terminal.say(
          "[the context slid: the first %d tokens were forgotten]".formatted(run.cropped()));
    }
    attention.announce(terminal, run);
  }
}
