package dev.loupe.cuda.measure;

import dev.loupe.cuda.DeviceBuffer;
import dev.loupe.cuda.Gpu;
import dev.loupe.cuda.Graph;
import dev.loupe.cuda.Kernel;
import dev.loupe.cuda.Launch;
import dev.loupe.cuda.RawDriver;
import dev.loupe.cuda.driver.Element;
import dev.loupe.cuda.driver.Parameter;
import dev.loupe.cuda.emulator.Emulator;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import java.util.function.Consumer;
import java.util.stream.IntStream;
import jcuda.NativePointerObject;
import jcuda.Pointer;

/**
 * Times what a persistent decoding kernel would stand on (micro.cu): one dependency of every block
 * on every block by each primitive, and how fast a ring in shared memory streams. A line of JSON
 * for each.
 */
final class MicroBenchmark {
  /** How a value gets from every block to every block. */
  enum Edge {
    /** The boundary of two kernels in one graph. */
    NODE,
    /** A counter that all blocks add to. */
    COUNTER,
    /** A flag of each block. */
    FLAGS,
    /** The value and its round in one word. */
    WORDS
  }

  private static final int THREADS = 128;
  private static final int STREAM_THREADS = 256;
  private static final int CHUNK = STREAM_THREADS * 4 * 16; // bytes
  private static final int MOST_STAGES = 4;
  private static final int MOST_BLOCKS = 128; // of dependencies, as a decoding kernel would have
  private static final int POLLS = 1 << 22; // a second or more, and no wait takes microseconds

  private final Gpu gpu;

  MicroBenchmark(Gpu gpu) {
    this.gpu = gpu;
  }

  public static void main(String[] args) {
    try (Gpu gpu = Emulator.open()) {
      MicroBenchmark benchmark = new MicroBenchmark(gpu);
      boolean emulated = Emulator.isDriver();
      if (emulated) {
        System.out.println("emulated: nothing here is a GPU's time, few rounds, one sample");
      }
      int samples = emulated ? 1 : 30;
      int blocks = Math.min(MOST_BLOCKS, gpu.multiprocessors());
      for (Edge edge : Edge.values()) {
        benchmark.time(edge, blocks, emulated ? 4 : 2000, samples, System.out::println);
      }
      long bytes = emulated ? 100 * CHUNK : Math.min(1L << 30, gpu.freeBytes() / 4);
      benchmark.timeStreams(bytes, samples, System.out::println);
    }
  }

  /** Times {@code rounds} dependencies in a row; checks that all were kept. */
  void time(Edge edge, int blocks, int rounds, int samples, Consumer<String> out) {
    try (Rounds run = new Rounds(edge, blocks, rounds, POLLS)) {
      Spread us = Spread.of(3, samples, () -> 1e3 * run.milliseconds() / rounds);
      run.requireRight();
      out.accept(
          "{\"edge\": \"%s\", \"blocks\": %d, \"rounds\": %d, \"us\": %s}"
              .formatted(edge.name().toLowerCase(Locale.ROOT), blocks, rounds, us.json()));
    }
  }

  /** Rounds in which every block hands a value to every block. */
  final class Rounds implements AutoCloseable {
    private final Edge edge;
    private final int blocks;
    private final int rounds;
    private final int polls;
    private final DeviceBuffer values; // [2, blocks], of words twice as long
    private final DeviceBuffer arrived; // the counter, or the flags
    private final DeviceBuffer right; // [blocks, blocks]
    private final DeviceBuffer abort = gpu.allocate(Element.I32, 1);
    private final List<Graph> graph; // of the nodes, or empty

    Rounds(Edge edge, int blocks, int rounds, int polls) {
      if (blocks < 1 || blocks > THREADS || rounds < 1) {
        throw new IllegalArgumentException("%d blocks, %d rounds".formatted(blocks, rounds));
      }
      this.edge = edge;
      this.blocks = blocks;
      this.rounds = rounds;
      this.polls = polls;
      values = gpu.allocate(Element.I32, 4L * blocks);
      arrived = gpu.allocate(Element.I32, blocks);
      right = gpu.allocate(Element.I32, (long) blocks * blocks);
      graph = edge == Edge.NODE ? List.of(recorded()) : List.of();
    }

    private Graph recorded() {
      Launch node = // loaded before, since nothing loads in a recording
          new Launch(
              gpu.kernel("micro", "micro_node"),
              Parameter.POINTER,
              Parameter.POINTER,
              Parameter.POINTER,
              Parameter.INT);
      return gpu.record(() -> nodes(node));
    }

    private void nodes(Launch node) {
      for (int round = 1; round <= rounds; round++) {
        node.set(0, values.slice((round + 1L) % 2 * blocks, blocks))
            .set(1, values.slice(round % 2L * blocks, blocks))
            .set(2, right)
            .set(3, round)
            .run(blocks, 1, 1, THREADS, 1, 0);
      }
    }

    /** Runs them all; the time that this took. */
    double milliseconds() {
      abort.fill((byte) 0);
      arrived.fill((byte) 0);
      right.fill((byte) 0);
      values.fill((byte) 0);
      if (edge == Edge.NODE) {
        values.upload(IntStream.range(0, blocks).toArray()); // of a round before the first
        return gpu.milliseconds(graph.getFirst()::launch);
      }
      Kernel kernel = gpu.kernel("micro", "micro_" + edge.name().toLowerCase(Locale.ROOT));
      Pointer of = parameters();
      return gpu.milliseconds(
          () -> RawDriver.launchCooperatively(gpu, kernel, blocks, THREADS, 0, of));
    }

    /** Ends with null, as {@link Launch} has it. */
    private Pointer parameters() {
      Pointer n = Pointer.to(new int[] {rounds});
      Pointer limit = Pointer.to(new int[] {polls});
      Pointer end = new Pointer();
      NativePointerObject[] all =
          edge == Edge.WORDS
              ? new NativePointerObject[] {to(values), to(right), to(abort), n, limit, end}
              : new NativePointerObject[] {
                to(arrived), to(values), to(right), to(abort), n, limit, end
              };
      return Pointer.to(all);
    }

    private Pointer to(DeviceBuffer buffer) {
      return RawDriver.parameter(buffer);
    }

    /** [block, from]: rounds in which {@code block} saw the right value of {@code from}. */
    int[] right() {
      int[] counts = new int[blocks * blocks];
      right.download(counts);
      return counts;
    }

    /** True if a wait ended because it took too many polls. */
    boolean aborted() {
      int[] word = new int[1];
      abort.download(word);
      return word[0] != 0;
    }

    void requireRight() {
      if (aborted() || !Arrays.stream(right()).allMatch(n -> n == rounds)) {
        throw new IllegalStateException(
            "%s lost a dependency of %d blocks, %d rounds".formatted(edge, blocks, rounds));
      }
    }

    @Override
    public void close() {
      graph.forEach(Graph::close);
      List.of(values, arrived, right, abort).forEach(DeviceBuffer::close);
    }
  }

  /** Times a stream of {@code bytes} by plain loads, and by rings of one to four stages. */
  void timeStreams(long bytes, int samples, Consumer<String> out) {
    try (DeviceBuffer x = gpu.allocate(Element.I32, bytes / CHUNK * CHUNK / Integer.BYTES)) {
      x.fill((byte) 1);
      for (int stages = 0; stages <= MOST_STAGES; stages++) {
        try (Stream stream = new Stream(x, stages)) {
          Spread us = Spread.of(3, samples, () -> 1e3 * gpu.milliseconds(stream::launch));
          if (stream.sum() != (int) (x.elements() * 0x01010101)) {
            throw new IllegalStateException("a stream of %d stages is wrong".formatted(stages));
          }
          out.accept(
              "{\"stream\": \"%s\", \"stages\": %d, \"blocks\": %d, \"bytes\": %d, \"GB_per_s\": %s}"
                  .formatted(
                      stages == 0 ? "plain loads" : "ring",
                      stages,
                      stream.blocks,
                      x.bytes(),
                      us.rate(1e-3 * x.bytes()).json()));
        }
      }
    }
  }

  /** Reads a buffer once, one block a multiprocessor. */
  final class Stream implements AutoCloseable {
    private final int blocks = gpu.multiprocessors();
    private final DeviceBuffer sums = gpu.allocate(Element.I32, (long) blocks * STREAM_THREADS);
    private final Launch launch;
    private final int stages;

    /**
     * @param x I32, whole chunks
     * @param stages of the ring; 0: plain loads
     */
    Stream(DeviceBuffer x, int stages) {
      String name = stages == 0 ? "micro_stream_plain" : "micro_stream_ring" + stages;
      this.stages = stages;
      launch =
          new Launch(gpu.kernel("micro", name), Parameter.POINTER, Parameter.POINTER, Parameter.INT)
              .set(0, x)
              .set(1, sums)
              .set(2, Math.toIntExact(x.bytes() / CHUNK));
    }

    void launch() {
      launch.run(blocks, 1, 1, STREAM_THREADS, 1, stages * CHUNK);
    }

    /** Sum of all 32-bit words, without carry beyond them. */
    int sum() {
      int[] parts = new int[blocks * STREAM_THREADS];
      sums.download(parts);
      return Arrays.stream(parts).sum();
    }

    @Override
    public void close() {
      sums.close();
    }
  }
}
