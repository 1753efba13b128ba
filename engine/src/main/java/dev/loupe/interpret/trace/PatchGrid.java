package dev.loupe.interpret.trace;

import dev.loupe.generate.OpenModel;
import dev.loupe.generate.Token;
import dev.loupe.interpret.trace.Cut.Change;
import dev.loupe.interpret.trace.Experiment.Question;
import dev.loupe.interpret.trace.TraceListener.Phase;
import dev.loupe.model.ModelInfo;
import dev.loupe.weights.config.Gpt2Config;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Objects;
import java.util.concurrent.CancellationException;
import java.util.stream.Stream;

/**
 * Activation patching (Meng et al., arXiv 2202.05262; Wang et al., arXiv 2211.00593), a cell at a
 * time: at one position, one activation of the text is what it is in a second text of as many
 * tokens, and the effect is what that changes in the quantity.
 *
 * @param model where it came from
 * @param tokens the text up to the position, and the token after it if the text has one
 * @param position of the token after which the model speaks, from 0
 * @param quantity what is measured
 * @param value of the quantity
 * @param otherValue of the quantity in the second text
 * @param rows what is patched
 */
public record PatchGrid(
    ModelInfo model,
    List<Token> tokens,
    int position,
    Quantity quantity,
    double value,
    double otherValue,
    List<Row> rows) {

  /** What is patched. */
  public enum Site {
    /** What a layer reads: the residual stream before it. */
    RESIDUAL("residual"),
    /** What all heads of a layer make. */
    ATTENTION("attention"),
    /** What the MLP of a layer adds. */
    MLP("mlp"),
    /** What one head makes. */
    HEAD("head"),
    /** The queries of one head. */
    QUERY("q"),
    /** Its keys. */
    KEY("k"),
    /** Its values. */
    VALUE("v");

    private final String label;

    Site(String label) {
      this.label = label;
    }

    /** Its name in JSON. */
    public String label() {
      return label;
    }
  }

  /**
   * The effects of one activation.
   *
   * @param head of a head; {@link Part#MLP} elsewhere
   * @param effects by position, up to the one in question; 0 where both texts are the same up to
   *     there
   */
  public record Row(Site site, int layer, int head, List<Double> effects) {
    public Row {
      effects = List.copyOf(effects);
    }

    /** How it is called: {@code residual 3}, {@code 4.0} or {@code 4.0 q}. */
    public String label() {
      return switch (site) {
        case RESIDUAL, ATTENTION, MLP -> site.label + " " + layer;
        case HEAD -> layer + "." + head;
        default -> "%d.%d %s".formatted(layer, head, site.label);
      };
    }
  }

  public PatchGrid {
    tokens = List.copyOf(tokens);
    rows = List.copyOf(rows);
    for (Row row : rows) {
      if (row.effects.size() != position + 1) {
        throw new IllegalArgumentException(
            "%d effects up to position %d".formatted(row.effects.size(), position));
      }
    }
  }

  /** Which rows a grid has. */
  public enum Kind {
    /** Residual stream, attention output and MLP output of every layer. */
    LAYERS,
    /** Every head. */
    HEADS
  }

  /**
   * Patches layers or heads.
   *
   * @param request its second text is what is patched from
   * @throws IllegalArgumentException if there is no second text, or as {@link Trace#of}
   * @throws CancellationException if the listener ended it
   */
  public static PatchGrid of(OpenModel model, TraceRequest request, Kind kind) {
    Gpt2Config config = model.config();
    List<Row> rows = new ArrayList<>();
    for (int layer = 0; layer < config.nLayer(); layer++) {
      if (kind == Kind.LAYERS) {
        rows.add(new Row(Site.RESIDUAL, layer, Part.MLP, List.of()));
        rows.add(new Row(Site.ATTENTION, layer, Part.MLP, List.of()));
        rows.add(new Row(Site.MLP, layer, Part.MLP, List.of()));
      } else {
        for (int head = 0; head < config.nHead(); head++) {
          rows.add(new Row(Site.HEAD, layer, head, List.of()));
        }
      }
    }
    return of(model, request, rows);
  }

  /**
   * Patches what one head makes, and its queries, keys and values apart.
   *
   * @throws IllegalArgumentException also if there is no such head
   */
  public static PatchGrid of(OpenModel model, TraceRequest request, Part head) {
    model.config().requireHead(head.layer(), head.head());
    List<Row> rows = new ArrayList<>();
    for (Site site : List.of(Site.HEAD, Site.QUERY, Site.KEY, Site.VALUE)) {
      rows.add(new Row(site, head.layer(), head.head(), List.of()));
    }
    return of(model, request, rows);
  }

  private static PatchGrid of(OpenModel model, TraceRequest request, List<Row> rows) {
    if (request.patch().isEmpty()) {
      throw new IllegalArgumentException("there is no second text to patch from");
    }
    Question question =
        Question.of(
            model,
            request.prompt(),
            request.at(),
            request.target(),
            request.against(),
            request.patch());
    int shown = Math.min(question.all().length, question.ids().length + 1);
    List<Token> tokens =
        Token.of(model.tokenizer(), request.prompt(), Arrays.copyOf(question.all(), shown));
    return model.onFiles(
        () -> {
          try (Cells cells = new Cells(model, request, question, rows)) {
            return cells.grid(model.info(), tokens, rows);
          }
        });
  }

  /** Measures the cells. */
  private static final class Cells implements AutoCloseable {
    private static final List<Site> INPUTS = List.of(Site.QUERY, Site.KEY, Site.VALUE);

    private final TraceListener listener;
    private final Gpt2Config config;
    private final Experiment experiment;
    private final Recording clean;
    private final Recording other;
    private final HeadMath math;
    private final int first; // position at which the texts differ
    private final long total; // rows of layers
    private long done;

    Cells(OpenModel open, TraceRequest request, Question question, List<Row> rows) {
      listener = request.listener();
      config = open.config();
      math = new HeadMath(open.checkpoint());
      int[] second = question.patch().orElseThrow();
      first = Arrays.mismatch(question.ids(), second);
      long tokens = second.length;
      long layers = rows.stream().mapToLong(row -> config.nLayer() - row.layer).sum();
      total = tokens * (layers * (tokens - first) + 2L * config.nLayer());
      experiment = new Experiment(open, question, this::done);
      clean = experiment.runner().clean();
      other = Objects.requireNonNull(experiment.other());
    }

    private void done(long rows) {
      done += rows;
      if (!listener.tracing(Phase.GRID, Math.min(done, total), total)) {
        throw new CancellationException("the grid was ended");
      }
    }

    PatchGrid grid(ModelInfo info, List<Token> tokens, List<Row> rows) {
      List<Row> measured = new ArrayList<>();
      for (Row row : rows) {
        List<Double> effects = new ArrayList<>();
        for (int t = 0; t < first; t++) {
          effects.add(0.0);
        }
        for (double effect : experiment.effects(cuts(row))) {
          effects.add(effect);
        }
        measured.add(new Row(row.site, row.layer, row.head, effects));
      }
      return new PatchGrid(
          info,
          tokens,
          experiment.tokens() - 1,
          experiment.quantity(),
          experiment.value(),
          experiment.otherValue(other),
          measured);
    }

    /** One for each position from the first at which the texts differ. */
    private List<Cut> cuts(Row row) {
      int tokens = experiment.tokens();
      List<Cut> cuts = new ArrayList<>();
      if (INPUTS.contains(row.site)) {
        return inputs(row);
      }
      for (int t = first; t < tokens; t++) {
        List<Change> changes = new ArrayList<>();
        switch (row.site) {
          case RESIDUAL ->
              changes.add(
                  new Change(
                      Cut.Site.RESIDUAL, row.layer, 0, row(other.x[row.layer], t), t, t + 1));
          case MLP -> changes.add(output(Part.mlp(row.layer), t));
          case HEAD -> changes.add(output(new Part(row.layer, row.head), t));
          default -> {
            for (int head = 0; head < config.nHead(); head++) {
              changes.add(output(new Part(row.layer, head), t));
            }
          }
        }
        cuts.add(new Cut(changes));
      }
      return cuts;
    }

    private Change output(Part part, int t) {
      return Cut.change(part, row(other.output(part), t), t, t + 1);
    }

    private float[] row(float[] rows, int t) {
      int columns = rows.length / experiment.tokens();
      return Arrays.copyOfRange(rows, t * columns, (t + 1) * columns);
    }

    /** What a head makes where one of its inputs is, at one position, that of the second text. */
    private List<Cut> inputs(Row row) {
      Part part = new Part(row.layer, row.head);
      double[][] usual = projected(clean, part);
      double[][] second = projected(other, part);
      double[] made = math.attend(usual[0], usual[1], usual[2], row.layer);
      int which = INPUTS.indexOf(row.site);
      List<Cut> cuts = new ArrayList<>();
      for (int t = first; t < experiment.tokens(); t++) {
        double[][] changed = usual.clone();
        changed[which] = usual[which].clone();
        int at = t * config.headDim();
        System.arraycopy(second[which], at, changed[which], at, config.headDim());
        double[] other = math.attend(changed[0], changed[1], changed[2], row.layer);
        float[] output = clean.output(part);
        for (int i = 0; i < output.length; i++) {
          output[i] += (float) (other[i] - made[i]);
        }
        cuts.add(Cut.of(part, output, experiment.tokens()));
      }
      return cuts;
    }

    private double[][] projected(Recording of, Part part) {
      double[] normed = math.norm(of.x[part.layer()], part.layer());
      return Stream.of(Via.QUERY, Via.KEY, Via.VALUE)
          .map(via -> math.project(normed, part.layer(), part.head(), via))
          .toArray(double[][]::new);
    }

    @Override
    public void close() {
      experiment.close();
    }
  }
}
