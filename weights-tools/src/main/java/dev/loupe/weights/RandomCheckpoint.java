package dev.loupe.weights;

import dev.loupe.weights.config.Activation;
import dev.loupe.weights.config.ConfigJson;
import dev.loupe.weights.config.ConfigWriter;
import dev.loupe.weights.config.Gpt2Config;
import dev.loupe.weights.config.Gpt2Layout;
import dev.loupe.weights.format.SafetensorsReader;
import dev.loupe.weights.format.SafetensorsWriter;
import dev.loupe.weights.io.AtomicFile;
import dev.loupe.weights.io.FileFault;
import dev.loupe.weights.io.Progress;
import dev.loupe.weights.tensor.DType;
import java.io.IOException;
import java.io.OutputStream;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.function.UnaryOperator;
import java.util.stream.Collectors;
import java.util.stream.IntStream;

/**
 * Makes GPT-2 checkpoints with random weights, for tests and benchmarks without a download. One
 * seed gives the same bytes on every machine, and the same values in every layout.
 *
 * <p>The weights are drawn as GPT-2 draws them before training (Radford et al. 2019, section 2.3):
 * deviation 0.02, the residual projections divided by sqrt(2 L), positions 0.01. But nothing is
 * left at 0 or 1: biases deviate by 0.02 from 0 and the layer norms' weights by 0.1 from 1, so that
 * a forgotten bias, a wrong layer norm or a missing transposition shows in the output.
 */
public final class RandomCheckpoint {
  private static final double DEVIATION = 0.02;
  private static final int CHUNK = 1 << 16; // elements that one thread makes at a time
  private static final int SLAB = 16 * CHUNK; // elements between two writes

  private RandomCheckpoint() {}

  /** The sizes of the published models, and a tiny one. */
  public enum Size {
    /** 0.2 million parameters: opens and runs at once. */
    TINY("tiny", 3, 2, 64, 128, 1024),
    /** 124 million parameters. */
    GPT2("gpt2", 12, 12, 768, 1024, 50257),
    /** 355 million parameters. */
    GPT2_MEDIUM("gpt2-medium", 24, 16, 1024, 1024, 50257),
    /** 774 million parameters. */
    GPT2_LARGE("gpt2-large", 36, 20, 1280, 1024, 50257),
    /** 1,558 million parameters. */
    GPT2_XL("gpt2-xl", 48, 25, 1600, 1024, 50257);

    private final String label;
    private final Gpt2Config config;

    Size(String label, int layers, int heads, int width, int positions, int vocabulary) {
      this.label = label;
      int endOfText = vocabulary - 1;
      this.config =
          new Gpt2Config(
              layers,
              heads,
              width,
              positions,
              vocabulary,
              4 * width,
              Activation.GELU_NEW,
              1e-5f,
              true,
              false,
              endOfText,
              endOfText);
    }

    /** The name on the command line, e.g. {@code gpt2-medium}. */
    public String label() {
      return label;
    }

    /** The model's shape. */
    public Gpt2Config config() {
      return config;
    }

    /**
     * The size with this label.
     *
     * @throws IllegalArgumentException if there is none; the message lists those there are
     */
    public static Size named(String label) {
      for (Size size : values()) {
        if (size.label.equals(label)) {
          return size;
        }
      }
      String known = Arrays.stream(values()).map(Size::label).collect(Collectors.joining(", "));
      throw new IllegalArgumentException("no size \"" + label + "\"; there are " + known);
    }
  }

  /**
   * How the values are stored.
   *
   * @param dtype of all tensors
   * @param separateHead whether there is an {@code lm_head.weight} with values of its own
   * @param prefixed whether names start with {@code transformer.}
   * @param buffers whether {@code h.N.attn.bias} and {@code h.N.attn.masked_bias} are there as well
   */
  public record Layout(DType dtype, boolean separateHead, boolean prefixed, boolean buffers) {
    /** As the official GPT-2 files, without the masks. */
    public static final Layout PLAIN = new Layout(DType.F32, false, false, false);
  }

  /** Writes a model of a published size in f32. */
  public static void write(Size size, long seed, Path folder, Progress progress)
      throws IOException {
    write(size.config(), seed, folder, Layout.PLAIN, progress);
  }

  /**
   * Writes config.json and model.safetensors, in memory of constant size.
   *
   * @param folder created if it isn't there
   * @param progress hears bytes of tensor data
   * @throws IOException if the folder holds a model already or can't be written; then nothing of
   *     the new model is left
   */
  public static void write(
      Gpt2Config config, long seed, Path folder, Layout layout, Progress progress)
      throws IOException {
    refuseExisting(folder);
    boolean isNew = !Files.exists(folder);
    createFolders(folder);
    boolean whole = false;
    try (AtomicFile json = AtomicFile.create(folder.resolve(ConfigJson.FILE_NAME))) {
      String text = ConfigWriter.text(config, layout.dtype, !layout.separateHead);
      try (OutputStream out = json.stream()) {
        out.write(text.getBytes(StandardCharsets.UTF_8));
      }
      Path weights = folder.resolve(SafetensorsReader.FILE_NAME);
      writeWeights(config, seed, weights, layout, progress);
      try {
        json.commit();
        whole = true;
      } finally {
        if (!whole) {
          Files.deleteIfExists(weights);
        }
      }
    } finally {
      if (!whole && isNew) {
        Files.deleteIfExists(folder);
      }
    }
  }

  static void createFolders(Path folder) throws IOException {
    try {
      Files.createDirectories(folder);
    } catch (IOException e) {
      throw new IOException(
          "the folder %s can't be created: %s".formatted(folder, FileFault.of(e)), e);
    }
  }

  /** Refuses a folder that holds a model of any format. */
  static void refuseExisting(Path folder) throws IOException {
    if (Files.exists(folder) && !Files.isDirectory(folder)) {
      throw new IOException(folder + " is a file; give a new folder");
    }
    List<String> names = new ArrayList<>(List.of(ConfigJson.FILE_NAME));
    names.addAll(Formats.fixedNames());
    for (String name : names) {
      if (Files.exists(folder.resolve(name))) {
        throw new IOException(
            "%s already holds a model (%s); give a new folder or delete it"
                .formatted(folder, name));
      }
    }
  }

  private static void writeWeights(
      Gpt2Config config, long seed, Path file, Layout layout, Progress progress)
      throws IOException {
    Map<SafetensorsWriter.Entry, Values> plan = plan(config, seed, layout);
    long total = plan.keySet().stream().mapToLong(SafetensorsWriter.Entry::bytes).sum();
    float[] slab = new float[SLAB];
    try (SafetensorsWriter out = SafetensorsWriter.create(file, List.copyOf(plan.keySet()));
        Arena arena = Arena.ofShared()) {
      MemorySegment bytes = arena.allocate((long) SLAB * layout.dtype.bytes());
      for (Map.Entry<SafetensorsWriter.Entry, Values> tensor : plan.entrySet()) {
        SafetensorsWriter.Entry entry = tensor.getKey();
        long elements = entry.bytes() / layout.dtype.bytes();
        for (long first = 0; first < elements; first += SLAB) {
          int count = (int) Math.min(SLAB, elements - first);
          make(tensor.getValue(), first, count, slab, layout.dtype, bytes);
          out.write(entry.name(), bytes.asSlice(0, (long) count * layout.dtype.bytes()));
          progress.report(out.dataBytes(), total);
        }
      }
      out.commit();
    }
  }

  /** On all cores; who makes which chunk doesn't matter, since every element has its own seed. */
  private static void make(
      Values values, long first, int count, float[] slab, DType dtype, MemorySegment bytes) {
    IntStream.range(0, Math.ceilDiv(count, CHUNK))
        .parallel()
        .forEach(
            chunk -> {
              int at = chunk * CHUNK;
              int n = Math.min(CHUNK, count - at);
              values.fill(first + at, slab, at, n);
              dtype.encode(slab, at, n, bytes, (long) at * dtype.bytes());
            });
  }

  /** What to write and with which values, in the order of the file. */
  private static Map<SafetensorsWriter.Entry, Values> plan(
      Gpt2Config config, long seed, Layout layout) {
    Map<SafetensorsWriter.Entry, Values> plan = new LinkedHashMap<>();
    UnaryOperator<String> stored = name -> layout.prefixed ? Gpt2Layout.prefixed(name) : name;
    Gpt2Layout.shapes(config, layout.separateHead)
        .forEach(
            (name, shape) ->
                plan.put(
                    new SafetensorsWriter.Entry(stored.apply(name), layout.dtype, shape),
                    weights(name, config, seed)));
    long positions = config.nPositions();
    for (int layer = 0; layout.buffers && layer < config.nLayer(); layer++) {
      String attn = stored.apply("h." + layer + ".attn.");
      plan.put(
          new SafetensorsWriter.Entry(
              attn + "bias", layout.dtype, List.of(1L, 1L, positions, positions)),
          causalMask(positions));
      plan.put(
          new SafetensorsWriter.Entry(attn + "masked_bias", layout.dtype, List.of()),
          (first, to, offset, n) -> Arrays.fill(to, offset, offset + n, -1e4f));
    }
    return plan;
  }

  /** The values of one tensor, in pieces. */
  private interface Values {
    /** Puts elements {@code first} to {@code first + count - 1} into {@code to}. */
    void fill(long first, float[] to, int offset, int count);
  }

  private static Values weights(String name, Gpt2Config config, long seed) {
    float mean = 0;
    double deviation = DEVIATION;
    if (name.equals("wpe.weight")) {
      deviation = DEVIATION / 2;
    } else if (name.endsWith(".c_proj.weight")) {
      deviation = DEVIATION / Math.sqrt(2.0 * config.nLayer());
    } else if (name.contains("ln_") && name.endsWith(".weight")) {
      mean = 1;
      deviation = 0.1;
    }
    long tensorSeed = mix(seed);
    for (int i = 0; i < name.length(); i++) {
      tensorSeed = mix(tensorSeed + name.charAt(i));
    }
    return bell(tensorSeed, mean, deviation);
  }

  /**
   * A bell curve from integers alone, so that no mathematical library has a say in the bits: the
   * sum of eight uniform 16-bit numbers, scaled. It ends at 4.9 deviations.
   */
  private static Values bell(long seed, float mean, double deviation) {
    double variance = 8 * (65536.0 * 65536.0 - 1) / 12;
    float scale = (float) (deviation / Math.sqrt(variance));
    int middle = 8 * 65535 / 2;
    long even = 0x0000FFFF0000FFFFL;
    return (first, to, offset, count) -> {
      for (int i = 0; i < count; i++) {
        long counter = seed + 2 * (first + i);
        long a = mix(counter);
        long b = mix(counter + 1);
        long lanes = (a & even) + ((a >>> 16) & even) + (b & even) + ((b >>> 16) & even);
        int sum = (int) lanes + (int) (lanes >>> 32);
        to[offset + i] = mean + (sum - middle) * scale;
      }
    };
  }

  /**
   * A bijection whose outputs for successive counters look random.
   *
   * <p>Source: SplitMix64; Steele, Lea and Flood, "Fast splittable pseudorandom number generators",
   * OOPSLA 2014.
   */
  private static long mix(long counter) {
    long z = counter * 0x9E3779B97F4A7C15L;
    z = (z ^ (z >>> 30)) * 0xBF58476D1CE4E5B9L;
    z = (z ^ (z >>> 27)) * 0x94D049BB133111EBL;
    return z ^ (z >>> 31);
  }

  private static Values causalMask(long positions) {
    return (first, to, offset, count) -> {
      for (int i = 0; i < count; i++) {
        long query = (first + i) / positions;
        long key = (first + i) % positions;
        to[offset + i] = key <= query ? 1 : 0;
      }
    };
  }
}
