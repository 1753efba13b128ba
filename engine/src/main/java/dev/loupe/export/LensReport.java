package dev.loupe.export;

import com.google.gson.stream.JsonWriter;
import dev.loupe.generate.Token;
import dev.loupe.interpret.Lens;
import java.io.IOException;
import java.io.StringWriter;
import java.io.UncheckedIOException;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.Locale;
import java.util.stream.Collectors;

/** A {@link Lens} for a terminal, and as JSON. */
public final class LensReport {
  private static final int STRONGEST = 8; // heads that are named

  private final Lens lens;
  private final int columns;
  private final StringBuilder out = new StringBuilder();

  private LensReport(Lens lens, int columns) {
    this.lens = lens;
    this.columns = columns;
  }

  /** Tables, no line longer than {@code columns}. */
  public static String text(Lens lens, int columns) {
    LensReport report = new LensReport(lens, columns);
    report.layers();
    report.parts();
    return report.out.toString();
  }

  private void line(String line) {
    out.append(TerminalText.fit(line, columns).stripTrailing()).append('\n');
  }

  private void layers() {
    Token read = lens.tokens().get(lens.position());
    boolean known = lens.position() + 1 < lens.tokens().size();
    line(
        "After %s, token %d, %s is %s."
            .formatted(
                read.label(),
                lens.position(),
                lens.label(),
                place(lens.layers().getLast().rank(), known)));
    line("What the model would say if it ended after a layer (after the final layer norm):");
    out.append('\n');
    String name = TerminalText.fit(lens.label(), 10).strip();
    line("layer  %s  %s".formatted(TerminalText.fit("rank and p of " + name, 24), "likeliest"));
    for (int i = 0; i < lens.layers().size(); i++) {
      Lens.Guess guess = lens.layers().get(i);
      String likeliest =
          guess.top().stream()
              .map(c -> "%s %s".formatted(c.label(), percent(c.logprob())))
              .collect(Collectors.joining("  "));
      String rank = "%,9d  %11s".formatted(guess.rank() + 1, percent(guess.logprob()));
      line("%5s  %s  %s".formatted(i == 0 ? "-" : i - 1, TerminalText.fit(rank, 24), likeliest));
    }
  }

  private static String place(int rank, boolean known) {
    String follows = known ? "what follows in the text, " : "";
    return follows + (rank == 0 ? "the likeliest" : "the likeliest but %,d".formatted(rank));
  }

  /** {@code <0.1%} rather than 0.0%. */
  private static String percent(double logprob) {
    double percent = 100 * Math.exp(logprob);
    return percent < 0.05 ? "<0.1%" : String.format(Locale.ROOT, "%.1f%%", percent);
  }

  /** A head, or an MLP, and what it adds. */
  private record Part(String name, double adds) {}

  private void parts() {
    List<Part> heads = new ArrayList<>();
    for (int layer = 0; layer < lens.heads().size(); layer++) {
      for (int head = 0; head < lens.heads().get(layer).size(); head++) {
        heads.add(new Part(layer + "." + head, lens.heads().get(layer).get(head)));
      }
    }
    List<Part> mlps = new ArrayList<>();
    for (int layer = 0; layer < lens.mlps().size(); layer++) {
      mlps.add(new Part(String.valueOf(layer), lens.mlps().get(layer)));
    }
    out.append('\n');
    line(
        "What adds directly to the logit of %s, above the vocabulary's mean:"
            .formatted(lens.label()));
    out.append('\n');
    row("its embedding", lens.token(), "");
    row("its position", lens.place(), "");
    row("heads", sum(heads), strongest(heads));
    row("their biases", lens.attentionBiases().stream().mapToDouble(v -> v).sum(), "");
    row("MLPs", sum(mlps), strongest(mlps));
    row("last norm's bias", lens.normBias(), "");
    row("logit", lens.logit(), "");
  }

  private void row(String name, double adds, String details) {
    line("%-16s %8s  %s".formatted(name, signed(adds), details));
  }

  private static double sum(List<Part> parts) {
    return parts.stream().mapToDouble(Part::adds).sum();
  }

  /** Those that add or take most. */
  private static String strongest(List<Part> parts) {
    return parts.stream()
        .sorted(Comparator.comparingDouble((Part p) -> -Math.abs(p.adds)))
        .limit(STRONGEST)
        .map(p -> p.name + " " + signed(p.adds))
        .collect(Collectors.joining("  "));
  }

  private static String signed(double value) {
    return String.format(Locale.ROOT, "%+.2f", value);
  }

  /** One object on one line, schema {@code loupe-lens/1}. */
  public static String json(Lens lens) {
    StringWriter out = new StringWriter();
    try (JsonWriter json = new JsonWriter(out)) {
      json.setHtmlSafe(false);
      json.beginObject();
      json.name("schema").value("loupe-lens/1");
      json.name("model").value(lens.model().source());
      json.name("backend").value(lens.model().backend());
      json.name("position").value(lens.position());
      json.name("tokens").beginArray();
      for (Token token : lens.tokens()) {
        json.beginObject();
        json.name("id").value(token.id());
        json.name("label").value(token.label());
        json.endObject();
      }
      json.endArray();
      json.name("target").beginObject();
      json.name("id").value(lens.target());
      json.name("label").value(lens.label());
      json.name("logit").value(lens.logit());
      json.endObject();
      guesses(lens, json);
      json.name("adds").beginObject();
      json.name("token").value(lens.token());
      json.name("position").value(lens.place());
      json.name("heads").beginArray();
      for (List<Double> layer : lens.heads()) {
        numbers(json, layer);
      }
      json.endArray();
      numbers(json.name("attention_biases"), lens.attentionBiases());
      numbers(json.name("mlps"), lens.mlps());
      json.name("ln_f_bias").value(lens.normBias());
      json.endObject();
      json.endObject();
    } catch (IOException e) {
      throw new UncheckedIOException(e); // a StringWriter has none
    }
    return out.toString();
  }

  private static void guesses(Lens lens, JsonWriter json) throws IOException {
    json.name("layers").beginArray();
    for (Lens.Guess guess : lens.layers()) {
      json.beginObject();
      json.name("logprob").value(guess.logprob());
      json.name("rank").value(guess.rank());
      json.name("top").beginArray();
      for (Token.Candidate candidate : guess.top()) {
        json.beginObject();
        json.name("id").value(candidate.id());
        json.name("label").value(candidate.label());
        json.name("logprob").value(candidate.logprob());
        json.endObject();
      }
      json.endArray();
      json.endObject();
    }
    json.endArray();
  }

  private static void numbers(JsonWriter json, List<Double> values) throws IOException {
    json.beginArray();
    for (double value : values) {
      json.value(value);
    }
    json.endArray();
  }
}
