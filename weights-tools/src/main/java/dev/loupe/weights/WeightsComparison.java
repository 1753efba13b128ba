package dev.loupe.weights;

import dev.loupe.weights.config.Gpt2Config;
import dev.loupe.weights.config.Gpt2Layout;
import dev.loupe.weights.io.Progress;
import dev.loupe.weights.tensor.StoredTensor;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;

/**
 * How far the weights of two checkpoints lie apart, whatever formats they are in. A head that one
 * of them stores and the other ties is compared with {@code wte}.
 *
 * @param settings what the configs say differently about the maths, one phrase each
 * @param tensors one by one; none if the shapes differ, which {@code settings} then says
 */
public record WeightsComparison(List<String> settings, List<Difference> tensors) {
  private static final int PIECE = 1 << 20; // elements at a time

  /**
   * How far two tensors lie apart.
   *
   * @param storedAs the types in the two files, where they differ both
   * @param largest difference of two elements as floats; infinite if one is NaN and the other not
   * @param at the index of the first element that differs as much, row-major; -1 if every element
   *     has the same bits as a float
   */
  public record Difference(
      String name, List<Long> shape, String storedAs, double largest, long at) {}

  public WeightsComparison {
    settings = List.copyOf(settings);
    tensors = List.copyOf(tensors);
  }

  /**
   * Compares two models, in memory of one tensor of each.
   *
   * @param progress hears elements
   */
  public static WeightsComparison of(Checkpoint a, Checkpoint b, Progress progress) {
    Gpt2Config ofA = a.config();
    Gpt2Config ofB = b.config();
    List<String> settings = new ArrayList<>();
    Map<String, Object> valuesOfB = maths(ofB);
    maths(ofA)
        .forEach(
            (name, value) -> {
              Object other = valuesOfB.get(name);
              if (!value.equals(other)) {
                settings.add("%s %s and %s".formatted(name, value, other));
              }
            });
    boolean anyHead = a.has(Gpt2Layout.HEAD) || b.has(Gpt2Layout.HEAD);
    Map<String, List<Long>> shapes = Gpt2Layout.shapes(ofA, anyHead);
    List<Difference> tensors = new ArrayList<>();
    if (shapes.equals(Gpt2Layout.shapes(ofB, anyHead))) {
      long total = shapes.values().stream().mapToLong(WeightsComparison::elements).sum();
      long done = 0;
      for (Map.Entry<String, List<Long>> tensor : shapes.entrySet()) {
        tensors.add(of(stored(a, tensor.getKey()), stored(b, tensor.getKey()), tensor.getKey()));
        done += elements(tensor.getValue());
        progress.report(done, total);
      }
    }
    return new WeightsComparison(settings, tensors);
  }

  /** What a forward pass depends on, under the names of config.json. */
  private static Map<String, Object> maths(Gpt2Config config) {
    Map<String, Object> maths = new java.util.LinkedHashMap<>();
    maths.put("n_layer", config.nLayer());
    maths.put("n_head", config.nHead());
    maths.put("n_embd", config.nEmbd());
    maths.put("n_positions", config.nPositions());
    maths.put("vocab_size", config.vocabSize());
    maths.put("n_inner", config.nInner());
    maths.put("activation_function", config.activation().configName());
    maths.put("layer_norm_epsilon", config.layerNormEpsilon());
    maths.put("scale_attn_weights", config.scaleAttnWeights());
    maths.put("scale_attn_by_inverse_layer_idx", config.scaleAttnByInverseLayerIdx());
    return maths;
  }

  private static StoredTensor stored(Checkpoint checkpoint, String name) {
    boolean tied = name.equals(Gpt2Layout.HEAD) && !checkpoint.has(name);
    return checkpoint.tensor(tied ? "wte.weight" : name);
  }

  static Difference of(StoredTensor a, StoredTensor b, String name) {
    double largest = 0;
    long at = -1;
    int size = (int) Math.min(PIECE, a.elements());
    float[] ofA = new float[size];
    float[] ofB = new float[size];
    try (Arena one = Arena.ofConfined()) {
      MemorySegment dataOfA = a.data(one);
      MemorySegment dataOfB = b.data(one);
      for (long first = 0; first < a.elements(); first += size) {
        int n = (int) Math.min(size, a.elements() - first);
        a.dtype().decode(dataOfA, first * a.dtype().bytes(), ofA, 0, n);
        b.dtype().decode(dataOfB, first * b.dtype().bytes(), ofB, 0, n);
        for (int i = 0; i < n; i++) {
          if (Float.floatToIntBits(ofA[i]) == Float.floatToIntBits(ofB[i])) {
            continue;
          }
          double difference = Math.abs((double) ofA[i] - ofB[i]);
          difference = Double.isNaN(difference) ? Double.POSITIVE_INFINITY : difference;
          if (at < 0 || difference > largest) {
            largest = difference;
            at = first + i;
          }
        }
      }
    }
    String types =
        a.storedAs().equals(b.storedAs()) ? a.storedAs() : a.storedAs() + ", " + b.storedAs();
    return new Difference(name, a.shape(), types, largest, at);
  }

  private static long elements(List<Long> shape) {
    return shape.stream().reduce(1L, Math::multiplyExact);
  }

  /**
   * Whether the two are one model.
   *
   * @param tolerance the largest difference that is let pass; with 0 every element has to have the
   *     same bits as a float
   */
  public boolean within(double tolerance) {
    return settings.isEmpty() && tensors.stream().allMatch(tensor -> within(tensor, tolerance));
  }

  /** Whether two tensors are one, likewise. */
  public static boolean within(Difference tensor, double tolerance) {
    return tensor.at < 0 || (tolerance > 0 && tensor.largest <= tolerance);
  }
}
