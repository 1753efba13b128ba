package dev.loupe.interpret;

import dev.loupe.generate.OpenModel;
import dev.loupe.generate.ReadListener;
import dev.loupe.generate.ReadRequest;
import dev.loupe.model.AblatedModel;
import dev.loupe.model.Activations;
import dev.loupe.model.Reading;
import dev.loupe.model.Transformer;
import dev.loupe.ops.Ops;
import dev.loupe.ops.Tensor;
import dev.loupe.sampling.NotFiniteException;
import dev.loupe.sampling.Sampler;
import dev.loupe.weights.config.Gpt2Config;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.Arrays;
import java.util.concurrent.CancellationException;
import java.util.function.UnaryOperator;
import java.util.stream.IntStream;
import org.jspecify.annotations.Nullable;

/**
 * A text whose residual stream and logits are handed over a row at a time, as one pass over all of
 * it computes them, so that no more than a few rows of them are in memory. For one thread; the
 * caller closes it, before the model.
 */
public final class Readout implements AutoCloseable {
  /** Rows of logits made at a time. */
  private static final int LOGIT_ROWS = 32;

  /** Takes rows. */
  @FunctionalInterface
  public interface Rows {
    /**
     * Takes one row.
     *
     * @param layers how many blocks lie before it: 0 to n_layer
     * @param token which token's it is
     * @param values its numbers; the array is used again
     * @throws IOException if it can't be taken; the method that hands rows over passes it on
     */
    void row(int layers, int token, float[] values) throws IOException;
  }

  private final Transformer model;
  private final Gpt2Config config;
  private final ReadListener listener;
  private final UnaryOperator<NotFiniteException> explain;
  private final @Nullable AblatedModel changed;
  private final int length;
  private final Reading reading;
  private final Tensor logits; // [LOGIT_ROWS, V]
  private boolean read;

  /**
   * @param ids at least one, and no more than the context holds
   * @param changed closed with this
   * @param explain adds to an exception which weight is to blame
   */
  private Readout(
      Transformer model,
      ReadRequest request,
      int[] ids,
      @Nullable AblatedModel changed,
      UnaryOperator<NotFiniteException> explain) {
    this.model = model;
    this.changed = changed;
    this.explain = explain;
    config = model.config();
    listener = request.listener();
    length = ids.length;
    int rows = Math.min(LOGIT_ROWS, length);
    reading = new Reading(model, ids, rows, request.mask());
    try {
      logits = reading.arena().allocate(rows, config.vocabSize());
    } catch (Throwable e) {
      reading.close();
      throw e;
    }
  }

  /**
   * For the residual stream and the logits of a text.
   *
   * @throws IllegalArgumentException if the text is longer than the context, or the interventions
   *     do not fit the model
   */
  public static Readout of(OpenModel model, ReadRequest request) {
    int[] ids = model.tokensToRead(request.prompt());
    if (request.interventions().none()) {
      return new Readout(model.transformer(), request, ids, null, model::explain);
    }
    AblatedModel changed = model.ablated(request.interventions(), request.prompt());
    try {
      return new Readout(changed.model(), request, ids, changed, model::explain);
    } catch (Throwable e) {
      changed.close();
      throw e;
    }
  }

  /** How many tokens the text has. */
  public int length() {
    return length;
  }

  /** All tokens of the text, for the methods that take some. */
  public int[] all() {
    return IntStream.range(0, length).toArray();
  }

  /**
   * Reads the text and hands over the residual stream, [n_embd] a row: of the chosen tokens before
   * the first block, then after it, and so on up to the last.
   *
   * @param tokens which, ascending
   * @throws IllegalArgumentException if the text has no such token
   * @throws CancellationException if the request's listener ended it
   * @throws NotFiniteException if a number is NaN or infinite
   */
  public void residual(int[] tokens, Rows to) throws IOException {
    requireHere(tokens);
    pass(
        layers -> {
          Tensor x = reading.activations().x();
          for (int token : tokens) {
            hand(x, token, config.nEmbd(), layers, token, to);
          }
        });
  }

  /**
   * Hands over the residual stream after the last layer norm, [n_embd] a row, which the head is
   * multiplied with. Reads the text if that was not done.
   *
   * @param tokens which, ascending
   * @throws IllegalArgumentException if the text has no such token
   * @throws CancellationException if the request's listener ended it
   * @throws NotFiniteException if a number is NaN or infinite
   */
  public void finalNorm(int[] tokens, Rows to) throws IOException {
    end(
        tokens,
        (x, h) -> {
          model.finalNorm(reading.pass(), x, h);
          return h;
        },
        to);
  }

  /**
   * Hands over the logits, [vocab_size] a row, those of rows that only pad the vocabulary included.
   * Reads the text if that was not done.
   *
   * @param tokens after which; ascending
   * @throws IllegalArgumentException if the text has no such token
   * @throws CancellationException if the request's listener ended it
   * @throws NotFiniteException if a number is NaN or infinite
   */
  public void logits(int[] tokens, Rows to) throws IOException {
    end(
        tokens,
        (x, h) -> {
          Tensor out = logits.rows(0, x.rows());
          model.logits(reading.pass(), x, h, out);
          return out;
        },
        to);
  }

  /** What is done to a residual stream [R, C] at its end, with room for its norm [R, C]. */
  private interface End {
    Tensor of(Tensor x, Tensor h);
  }

  private void end(int[] tokens, End end, Rows to) throws IOException {
    requireHere(tokens);
    if (!read) {
      pass(_ -> {});
    }
    Activations a = reading.activations();
    for (int i = 0; i < tokens.length; ) {
      int n = 1;
      while (n < logits.rows() && i + n < tokens.length && tokens[i + n] == tokens[i] + n) {
        n++;
      }
      Tensor out = end.of(a.x().rows(tokens[i], n), a.h().rows(0, n));
      for (int r = 0; r < n; r++) {
        hand(out, r, out.cols(), config.nLayer(), tokens[i + r], to);
      }
      i += n;
    }
  }

  /** Sees the residual stream between two blocks. */
  private interface Between {
    void blocks(int layers) throws IOException;
  }

  private void pass(Between between) throws IOException {
    read = false;
    try {
      reading.read(
          attention -> {
            try {
              between.blocks(attention.layer()); // x is still what the layers before this one left
            } catch (IOException e) {
              throw new UncheckedIOException(e);
            }
            if (!listener.reading(attention.layer() + 1, config.nLayer())) {
              throw new CancellationException("ended while reading the text");
            }
          });
    } catch (UncheckedIOException e) {
      throw e.getCause();
    }
    between.blocks(config.nLayer());
    read = true;
  }

  private void hand(Tensor from, int row, int width, int layers, int token, Rows to)
      throws IOException {
    Ops ops = model.ops();
    float[] values = new float[width];
    ops.read(from, row, values, width);
    try {
      Sampler.requireFinite(values);
    } catch (NotFiniteException e) {
      throw explain.apply(e);
    }
    to.row(layers, token, values);
  }

  private void requireHere(int[] tokens) {
    for (int i = 0; i < tokens.length; i++) {
      if (tokens[i] < 0 || tokens[i] >= length) {
        throw new IllegalArgumentException(
            "no token %d: the text has tokens 0..%d".formatted(tokens[i], length - 1));
      }
      if (i > 0 && tokens[i] <= tokens[i - 1]) {
        throw new IllegalArgumentException(
            "tokens %s do not ascend".formatted(Arrays.toString(tokens)));
      }
    }
  }

  @Override
  public void close() {
    try (changed;
        reading) { // in reverse
    }
  }
}
