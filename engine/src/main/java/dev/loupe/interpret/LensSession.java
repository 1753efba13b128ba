package dev.loupe.interpret;

import static dev.loupe.interpret.LogitDirection.dot;

import dev.loupe.generate.OpenModel;
import dev.loupe.generate.ReadListener;
import dev.loupe.generate.Token;
import dev.loupe.model.Activations;
import dev.loupe.model.ModelInfo;
import dev.loupe.model.Reading;
import dev.loupe.model.Transformer;
import dev.loupe.ops.Attention;
import dev.loupe.ops.Ops;
import dev.loupe.ops.Tensor;
import dev.loupe.ops.TensorArena;
import dev.loupe.sampling.Sampler;
import dev.loupe.sampling.TokenDistribution;
import dev.loupe.text.Labels;
import dev.loupe.text.Tokenizer;
import dev.loupe.weights.Checkpoint;
import dev.loupe.weights.config.Gpt2Config;
import dev.loupe.weights.tensor.StoredTensor;
import java.util.ArrayList;
import java.util.BitSet;
import java.util.List;
import java.util.concurrent.CancellationException;

/**
 * Reads a text up to one token and keeps that row of the residual stream and of the heads' outputs,
 * layer by layer. What the parts add is then computed on the host in double, from the checkpoint's
 * own weights, on every backend alike.
 */
final class LensSession implements AutoCloseable {
  private final Transformer model;
  private final Checkpoint checkpoint;
  private final Tokenizer tokenizer;
  private final ReadListener listener;
  private final Gpt2Config config;
  private final BitSet sayable;
  private final int[] ids; // up to the position
  private final Reading reading;
  private final Tensor residual; // [L + 1, C]
  private final Tensor heads; // [L, C]: y
  private final Tensor normed; // [L + 1, C]
  private final Tensor logits; // [L + 1, V]

  /**
   * @param ids what is read; the last of them is the one in question
   */
  LensSession(OpenModel open, ReadListener listener, int[] ids) {
    model = open.transformer();
    checkpoint = open.checkpoint();
    tokenizer = open.tokenizer();
    sayable = tokenizer.ids();
    this.listener = listener;
    this.ids = ids;
    config = model.config();
    int layers = config.nLayer();
    reading = new Reading(model, ids, layers + 1);
    TensorArena arena = reading.arena();
    try {
      residual = arena.allocate(layers + 1, config.nEmbd());
      heads = arena.activations(layers, config.nEmbd());
      normed = arena.activations(layers + 1, config.nEmbd());
      logits = arena.allocate(layers + 1, config.vocabSize());
    } catch (Throwable e) {
      reading.close();
      throw e;
    }
  }

  /**
   * @param tokens what is shown with it
   * @param target the token in question; negative for the likeliest
   * @param top how many tokens are named after each layer
   */
  Lens look(ModelInfo info, List<Token> tokens, int target, int top) {
    Ops ops = model.ops();
    reading.read(this::keep);
    ops.copy(reading.activations().x().rows(ids.length - 1, 1), residual.rows(config.nLayer(), 1));
    model.logits(reading.pass(), residual, normed, logits);
    float[] last = new float[config.vocabSize()];
    ops.read(logits, config.nLayer(), last, last.length);
    Sampler.requireFinite(last);
    int asked = target < 0 ? new TokenDistribution(last, sayable).top(1).getFirst().id() : target;
    double mean = sayable.stream().mapToDouble(id -> last[id]).average().orElseThrow();
    double[] unembedding = LogitDirection.unembedding(checkpoint, sayable, asked);
    double[] direction =
        LogitDirection.of(checkpoint, unembedding, values(residual, config.nLayer()));
    double place = dot(row("wpe.weight", ids.length - 1), direction);
    List<List<Double>> perHead = new ArrayList<>();
    List<Double> biases = new ArrayList<>();
    List<Double> mlps = new ArrayList<>();
    for (int layer = 0; layer < config.nLayer(); layer++) {
      List<Double> of = headsOf(layer, direction);
      double bias = dot(row("h.%d.attn.c_proj.bias".formatted(layer), 0), direction);
      double both =
          dot(values(residual, layer + 1), direction) - dot(values(residual, layer), direction);
      perHead.add(of);
      biases.add(bias);
      mlps.add(both - bias - of.stream().mapToDouble(v -> v).sum());
    }
    Lens lens =
        new Lens(
            info,
            tokens,
            ids.length - 1,
            asked,
            Labels.label(tokenizer, asked),
            guesses(asked, top),
            dot(values(residual, 0), direction) - place,
            place,
            perHead,
            biases,
            mlps,
            dot(row("ln_f.bias", 0), unembedding),
            last[asked] - mean);
    reading.keep();
    return lens;
  }

  /** Before c_proj: x is still what the layers before this one left. */
  private void keep(Attention attention) {
    Ops ops = model.ops();
    int layer = attention.layer();
    int row = ids.length - 1;
    Activations a = reading.activations();
    ops.copy(a.x().rows(row, 1), residual.rows(layer, 1));
    ops.copy(a.y().rows(row, 1), heads.rows(layer, 1));
    if (!listener.reading(layer + 1, config.nLayer())) {
      throw new CancellationException("ended while reading the text");
    }
  }

  private List<Lens.Guess> guesses(int target, int top) {
    List<Lens.Guess> guesses = new ArrayList<>();
    for (int layer = 0; layer <= config.nLayer(); layer++) {
      float[] row = new float[config.vocabSize()];
      model.ops().read(logits, layer, row, row.length);
      Sampler.requireFinite(row);
      TokenDistribution d = new TokenDistribution(row, sayable);
      guesses.add(
          new Lens.Guess(
              d.logprob(target), d.rank(target), Token.candidates(tokenizer, d.top(top))));
    }
    return guesses;
  }

  /** What a head adds is the part of its output, times its rows of c_proj, in that direction. */
  private List<Double> headsOf(int layer, double[] direction) {
    StoredTensor weight = checkpoint.tensor("h.%d.attn.c_proj.weight".formatted(layer)); // [C, C]
    double[] y = values(heads, layer);
    List<Double> added = new ArrayList<>();
    for (int head = 0; head < config.nHead(); head++) {
      double sum = 0;
      for (int i = head * config.headDim(); i < (head + 1) * config.headDim(); i++) {
        sum += y[i] * dot(LogitDirection.row(weight, i), direction);
      }
      added.add(sum);
    }
    return added;
  }

  private double[] values(Tensor tensor, int row) {
    float[] values = new float[tensor.cols()];
    model.ops().read(tensor, row, values, values.length);
    return LogitDirection.wide(values);
  }

  private double[] row(String name, int row) {
    return LogitDirection.row(checkpoint.tensor(name), row);
  }

  @Override
  public void close() {
    reading.close();
  }
}
