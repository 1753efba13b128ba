package dev.loupe.interpret;

import static dev.loupe.interpret.LogitDirection.dot;

import dev.loupe.generate.OpenModel;
import dev.loupe.generate.Prompt;
import dev.loupe.generate.Token;
import dev.loupe.model.ModelInfo;
import dev.loupe.model.Reading;
import dev.loupe.model.Transformer;
import dev.loupe.ops.Attention;
import dev.loupe.sampling.Sampler;
import dev.loupe.sampling.TokenDistribution;
import dev.loupe.text.Labels;
import dev.loupe.weights.tensor.StoredTensor;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;

/**
 * All numbers behind one row of attention: q . k by dimension, the scores, their softmax, the
 * values, what the head adds to the residual stream, and what that adds directly to a logit, as in
 * a {@link Lens}. Queries, keys and values are the backend's; all else is computed of them in
 * double, from the checkpoint's own weights.
 *
 * @param model where it came from
 * @param tokens the text; those after the query are masked
 * @param query position of the row
 * @param scale factor on q . k
 * @param q [D]: the query
 * @param keys those that the row reads, 0 to the query
 * @param logSumExp natural log of the softmax's denominator
 * @param output [D]: sum over keys of weight times value
 * @param written [C]: the output times the head's rows of c_proj, which goes to the residual stream
 * @param target the token in question
 * @param label how it is shown
 * @param direct what the written vector adds to the target's logit above the vocabulary's mean
 */
public record RowNumbers(
    ModelInfo model,
    List<Token> tokens,
    int layer,
    int head,
    int query,
    double scale,
    List<Double> q,
    List<Key> keys,
    double logSumExp,
    List<Double> output,
    List<Double> written,
    int target,
    String label,
    double direct) {

  /**
   * What the row makes of one key.
   *
   * @param products [D]: q times k by dimension; the score is their sum times the scale
   * @param score before the softmax
   * @param weight after it
   * @param valueNorm length of the value
   * @param writtenNorm length of what weight times value adds to the residual stream
   * @param direct what that adds to the logit; all keys together are the row's
   */
  public record Key(
      int position,
      List<Double> products,
      double score,
      double weight,
      double valueNorm,
      double writtenNorm,
      double direct) {
    public Key {
      products = List.copyOf(products);
    }
  }

  public RowNumbers {
    tokens = List.copyOf(tokens);
    q = List.copyOf(q);
    keys = List.copyOf(keys);
    output = List.copyOf(output);
    written = List.copyOf(written);
    if (keys.size() != query + 1) {
      throw new IllegalArgumentException(
          "%d keys of query %d, which reads %d".formatted(keys.size(), query, query + 1));
    }
  }

  /**
   * The numbers behind a row.
   *
   * @param query position of the token that reads; negative for the last
   * @param target the token whose logit is asked about; negative for the one that follows in the
   *     text, or the likeliest at its end
   * @throws IllegalArgumentException if there is no such layer, head, position or token, or the
   *     text is longer than the context
   */
  public static RowNumbers of(
      OpenModel model, Prompt prompt, int layer, int head, int query, int target) {
    int[] ids = model.tokensToRead(prompt);
    int at = model.position(ids, query);
    model.config().requireHead(layer, head);
    if (target >= 0) {
      model.tokenizer().requireToken(target);
    }
    int asked = target < 0 && at + 1 < ids.length ? ids[at + 1] : target;
    List<Token> tokens = Token.of(model.tokenizer(), prompt, ids);
    return model.onFiles(
        () -> new Row(model, layer, head, Arrays.copyOf(ids, at + 1)).numbers(tokens, asked));
  }

  /** Reads the text and computes. */
  private static final class Row {
    private final OpenModel open;
    private final Transformer model;
    private final int layer;
    private final int head;
    private final int[] ids;
    private final int headDim;
    private final double[][] q; // [T][D], only the last of it is used
    private final double[][] k;
    private final double[][] v;
    private double scale;

    Row(OpenModel open, int layer, int head, int... ids) {
      this.open = open;
      model = open.transformer();
      this.layer = layer;
      this.head = head;
      this.ids = ids;
      headDim = open.config().headDim();
      q = new double[ids.length][];
      k = new double[ids.length][];
      v = new double[ids.length][];
    }

    private void keep(Attention attention) {
      if (attention.layer() != layer) {
        return;
      }
      scale = attention.scale();
      int width = open.config().nEmbd();
      float[] row = new float[3 * width];
      for (int t = 0; t < ids.length; t++) {
        model.ops().read(attention.qkv(), t, row, row.length);
        double[] wide = LogitDirection.wide(row);
        int first = head * headDim;
        q[t] = Arrays.copyOfRange(wide, first, first + headDim);
        k[t] = Arrays.copyOfRange(wide, width + first, width + first + headDim);
        v[t] = Arrays.copyOfRange(wide, 2 * width + first, 2 * width + first + headDim);
      }
    }

    RowNumbers numbers(List<Token> tokens, int asked) {
      int query = ids.length - 1;
      float[] x = new float[open.config().nEmbd()];
      float[] logits = new float[open.config().vocabSize()];
      try (Reading reading = new Reading(model, ids, 1)) {
        reading.read(this::keep);
        var last = reading.activations().x().rows(query, 1);
        model.ops().read(last, 0, x, x.length);
        var out = reading.arena().allocate(1, logits.length);
        model.logits(reading.pass(), last, reading.activations().h().rows(query, 1), out);
        model.ops().read(out, 0, logits, logits.length);
      }
      Sampler.requireFinite(logits);
      var sayable = open.tokenizer().ids();
      int target =
          asked < 0 ? new TokenDistribution(logits, sayable).top(1).getFirst().id() : asked;
      double[] direction =
          LogitDirection.of(
              open.checkpoint(),
              LogitDirection.unembedding(open.checkpoint(), sayable, target),
              LogitDirection.wide(x));
      double[] scores = new double[query + 1];
      for (int key = 0; key <= query; key++) {
        scores[key] = scale * dot(q[query], k[key]);
      }
      double most = Arrays.stream(scores).max().orElseThrow();
      double lse = most + Math.log(Arrays.stream(scores).map(s -> Math.exp(s - most)).sum());
      double[] output = new double[headDim];
      double[][] projection = projection();
      List<Key> keys = new ArrayList<>();
      for (int key = 0; key <= query; key++) {
        double weight = Math.exp(scores[key] - lse);
        double[] part = new double[headDim];
        double[] products = new double[headDim];
        for (int d = 0; d < headDim; d++) {
          products[d] = q[query][d] * k[key][d];
          part[d] = weight * v[key][d];
          output[d] += part[d];
        }
        double[] adds = written(part, projection);
        keys.add(
            new Key(
                key,
                list(products),
                scores[key],
                weight,
                Math.sqrt(dot(v[key], v[key])),
                Math.sqrt(dot(adds, adds)),
                dot(adds, direction)));
      }
      double[] written = written(output, projection);
      return new RowNumbers(
          open.info(),
          tokens,
          layer,
          head,
          query,
          scale,
          list(q[query]),
          keys,
          lse,
          list(output),
          list(written),
          target,
          Labels.label(open.tokenizer(), target),
          dot(written, direction));
    }

    /** The head's rows of c_proj, [D][C]. */
    private double[][] projection() {
      StoredTensor weight =
          open.checkpoint().tensor("h.%d.attn.c_proj.weight".formatted(layer)); // [C, C]
      double[][] rows = new double[headDim][];
      Arrays.setAll(rows, d -> LogitDirection.row(weight, head * headDim + d));
      return rows;
    }

    /** What a vector of the head, [D], adds to the residual stream, [C]. */
    private static double[] written(double[] y, double[][] projection) {
      double[] out = new double[projection[0].length];
      for (int d = 0; d < y.length; d++) {
        for (int c = 0; c < out.length; c++) {
          out[c] += y[d] * projection[d][c];
        }
      }
      return out;
    }

    private static List<Double> list(double[] values) {
      return Arrays.stream(values).boxed().toList();
    }
  }
}
