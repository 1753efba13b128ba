package dev.loupe.model;

import dev.loupe.model.Interventions.Change;
import dev.loupe.ops.Linear;
import dev.loupe.ops.Ops;
import dev.loupe.ops.Tensor;
import dev.loupe.ops.TensorArena;
import dev.loupe.weights.Checkpoint;
import dev.loupe.weights.config.Gpt2Config;
import dev.loupe.weights.tensor.DType;
import dev.loupe.weights.tensor.StoredTensor;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.nio.ByteOrder;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/** A model with interventions, for one run: it shares all weights but the c_proj that change. */
public final class AblatedModel implements AutoCloseable {
  private static final ValueLayout.OfFloat F32 =
      ValueLayout.JAVA_FLOAT.withOrder(ByteOrder.LITTLE_ENDIAN);

  private final Transformer model;
  private final TensorArena arena;

  /**
   * @param prompt over whose positions means are taken
   */
  public AblatedModel(
      Transformer original, Checkpoint checkpoint, Interventions interventions, int[] prompt) {
    Gpt2Config config = interventions.of(original.config());
    Ops ops = original.ops();
    double[][] means =
        interventions.needMeans()
            ? means(original.variant(config, Map.of()), prompt)
            : new double[config.nLayer()][config.nEmbd()];
    arena = ops.arena();
    try {
      Map<Integer, Linear> changed = new HashMap<>();
      for (int layer = 0; layer < config.nLayer(); layer++) {
        int of = layer;
        List<Change> changes =
            interventions.changes().stream().filter(c -> c.layer() == of).toList();
        if (!changes.isEmpty()) {
          changed.put(layer, changed(checkpoint, config, layer, changes, means[layer]));
        }
      }
      arena.loaded();
      model = original.variant(config, changed);
    } catch (Throwable e) {
      arena.close();
      throw e;
    }
  }

  /** The model with the changed heads; ends with this. */
  public Transformer model() {
    return model;
  }

  /** [L, C]: what the heads of each layer made of the values, on average over the prompt. */
  private static double[][] means(Transformer model, int[] prompt) {
    Gpt2Config config = model.config();
    int rows = Math.min(prompt.length, config.nPositions());
    double[][] means = new double[config.nLayer()][config.nEmbd()];
    float[] row = new float[config.nEmbd()];
    int[] read = Arrays.copyOfRange(prompt, prompt.length - rows, prompt.length);
    try (Reading reading = new Reading(model, read, 1)) {
      Tensor y = reading.activations().y();
      reading.read(
          attention -> {
            for (int r = 0; r < rows; r++) {
              model.ops().read(y, r, row, row.length);
              for (int c = 0; c < row.length; c++) {
                means[attention.layer()][c] += row[c] / (double) rows;
              }
            }
          });
    }
    return means;
  }

  private Linear changed(
      Checkpoint checkpoint, Gpt2Config config, int layer, List<Change> changes, double[] mean) {
    StoredTensor weight = checkpoint.tensor("h.%d.attn.c_proj.weight".formatted(layer));
    StoredTensor bias = checkpoint.tensor("h.%d.attn.c_proj.bias".formatted(layer));
    int width = config.nEmbd();
    float[] w = new float[Math.multiplyExact(width, width)];
    weight.read(0, w, 0, w.length);
    float[] b = new float[width];
    bias.read(0, b, 0, width);
    double[] added = new double[width];
    for (Change change : changes) {
      int first = change.head() * config.headDim();
      for (int i = first; i < first + config.headDim(); i++) {
        for (int c = 0; c < width; c++) {
          if (change.mean()) {
            added[c] += mean[i] * w[i * width + c];
          }
          w[i * width + c] *= (float) change.factor();
        }
      }
    }
    for (int c = 0; c < width; c++) {
      b[c] += (float) added[c];
    }
    try (Arena host = Arena.ofShared()) { // several threads pack it
      return new Linear(
          arena.weight(stored(host, weight.name(), w, width, width)),
          arena.vector(stored(host, bias.name(), b, width)));
    }
  }

  private static StoredTensor stored(Arena arena, String name, float[] values, long... shape) {
    MemorySegment data = arena.allocate((long) Float.BYTES * values.length, 64);
    MemorySegment.copy(values, 0, data, F32, 0, values.length);
    List<Long> sizes = Arrays.stream(shape).boxed().toList();
    return new StoredTensor(name, DType.F32, sizes, data);
  }

  @Override
  public void close() {
    arena.close();
  }
}
