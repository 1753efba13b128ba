package dev.loupe.ops.cuda;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import dev.loupe.cuda.driver.CudaDriver;
import dev.loupe.model.StepPlans;
import dev.loupe.model.Transformer;
import dev.loupe.ops.Gemm;
import dev.loupe.ops.Precision;
import dev.loupe.ops.Steps;
import dev.loupe.ops.TensorArena;
import dev.loupe.weights.Checkpoint;
import dev.loupe.weights.RandomCheckpoint;
import dev.loupe.weights.config.Activation;
import dev.loupe.weights.config.Gpt2Config;
import dev.loupe.weights.io.Progress;
import dev.loupe.weights.tensor.DType;
import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Optional;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/**
 * What all kernels of a decoding step read, counted in sectors by the counting stand-in driver:
 * little more than each weight once, however many sequences take part in a step.
 */
@Tag("sweep")
class BytesOfStepTest {
  /** The kernels' own counting test builds it. */
  private static final Path LIBRARY =
      Path.of("..", "kernels", "target", "sanitizers", "count").toAbsolutePath();

  private static final Gpt2Config CONFIG =
      new Gpt2Config(
          3, 4, 256, 40, 1501, 1024, Activation.GELU_NEW, 1e-5f, true, false, 1500, 1500);

  @TempDir static Path folder;

  /** Prints the bytes that a step reads. */
  static final class Counting {
    private Counting() {}

    /**
     * Writes them on a line of its own.
     *
     * @param args folder of the model, precision, sequences
     */
    public static void main(String[] args) throws Throwable {
      int rows = Integer.parseInt(args[2]);
      try (Checkpoint checkpoint = Checkpoint.open(Path.of(args[0]));
          CudaOps ops = new CudaOps(0, Precision.valueOf(args[1]), Gemm.OWN, false);
          Transformer model = new Transformer(checkpoint, ops);
          TensorArena arena = ops.arena()) {
        try (Steps steps = StepPlans.begun(model, arena, rows, Optional.empty())) {
          steps.start(1);
          steps.take();
          call("emu_reset_counts", MemorySegment.NULL);
          steps.start(1);
          steps.take();
        }
        try (Arena memory = Arena.ofConfined()) {
          MemorySegment counts = memory.allocate(ValueLayout.JAVA_LONG, 6);
          call("emu_counts", counts);
          System.out.println("read " + 32 * counts.get(ValueLayout.JAVA_LONG, 0));
        }
      }
    }

    private static void call(String function, MemorySegment to) throws Throwable {
      Linker.nativeLinker()
          .downcallHandle(
              CudaDriver.library().orElseThrow().findOrThrow(function),
              FunctionDescriptor.of(ValueLayout.JAVA_INT, ValueLayout.ADDRESS))
          .invokeWithArguments(to);
    }
  }

  /**
   * Of the bytes of all matrices, which 8 sequences share. The rest is what each block reads for
   * itself, rows of x with their gamma and beta, and is less beside wider matrices.
   */
  @ParameterizedTest
  @CsvSource({"F16, 1, 1.25", "F16, 8, 1.8", "INT8, 1, 1.5", "F32, 1, 1.12"})
  void aStepReadsLittleMoreThanTheWeights(Precision precision, int rows, double most)
      throws Exception {
    assumeTrue(
        Files.exists(LIBRARY.resolve("libcuda.so.1")),
        "the counting stand-in was not built: CountsTest of the kernels builds it");
    if (!Files.exists(folder.resolve("config.json"))) {
      RandomCheckpoint.Layout layout = new RandomCheckpoint.Layout(DType.F32, true, true, true);
      RandomCheckpoint.write(CONFIG, 5, folder, layout, Progress.NONE);
    }
    double element =
        switch (precision) {
          case F32 -> 4;
          case INT8 -> 1 + 4.0 / 64; // and the scales of groups
          default -> 2;
        };
    long width = CONFIG.nEmbd();
    double weights =
        element * width * (12 * width * CONFIG.nLayer() + CONFIG.vocabSize()); // all matrices
    double read = read(precision, rows);
    System.out.printf(
        "%s, %d rows: %.3f times the weights are read%n", precision, rows, read / weights);
    assertTrue(read >= weights, read + " of " + weights);
    assertTrue(read <= most * weights, read / weights + " times the weights");
  }

  private static long read(Precision precision, int rows) throws Exception {
    Path output = folder.resolve("output");
    ProcessBuilder builder =
        new ProcessBuilder(
            Path.of(System.getProperty("java.home"), "bin", "java").toString(),
            "--enable-native-access=ALL-UNNAMED",
            "--add-modules",
            "jdk.incubator.vector",
            "-cp",
            System.getProperty("java.class.path"),
            Counting.class.getName(),
            folder.toString(),
            precision.name(),
            Integer.toString(rows));
    builder.environment().put("LD_LIBRARY_PATH", LIBRARY.toString());
    Process process = builder.redirectErrorStream(true).redirectOutput(output.toFile()).start();
    assertTrue(process.waitFor(10, TimeUnit.MINUTES), "still running");
    String text = Files.readString(output, StandardCharsets.UTF_8);
    assertEquals(0, process.exitValue(), text);
    return text.lines()
        .filter(line -> line.startsWith("read "))
        .mapToLong(line -> Long.parseLong(line.substring(5)))
        .findFirst()
        .orElseThrow();
  }
}
