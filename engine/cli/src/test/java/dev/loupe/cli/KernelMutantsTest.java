package dev.loupe.cli;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.loupe.Checkout;
import dev.loupe.EmulatedGpu;
import dev.loupe.OnGpu;
import dev.loupe.TinyModel;
import dev.loupe.cuda.selftest.SelfTest;
import java.io.File;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;
import org.junit.jupiter.api.Assumptions;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/**
 * A card whose kernels have a known bug (mutants.tsv) is found out at the first command, and the
 * text is right all the same.
 */
@OnGpu
@Timeout(1200)
@Tag("sweep")
class KernelMutantsTest {
  private static final Path KERNELS = Checkout.ROOT.resolve("kernels").toAbsolutePath().normalize();
  private static final Path LIBRARIES = Path.of("target", "mutants").toAbsolutePath();

  @TempDir static Path shared;
  @TempDir Path folder;
  private static Path model;
  private static String text;

  @BeforeAll
  static void model() throws Exception {
    EmulatedGpu.require();
    Assumptions.assumeTrue(Files.isDirectory(KERNELS.resolve("src")), "not in a checkout");
    model = TinyModel.in(shared).folder();
    text = Ran.loupe(generate("cpu")).well().out();
  }

  private static Object[] generate(String backend) {
    return new Object[] {
      "generate", "ROMEO:", "-m", model, "--greedy", "-n", 8, "--backend", backend, "--dtype", "f32"
    };
  }

  /** The card, as the first command meets it, with a mutant in the place of the right kernels. */
  private Map<String, String> environment(String mutant) throws Exception {
    boolean compiler =
        Stream.of(System.getenv("PATH").split(File.pathSeparator, -1))
            .anyMatch(path -> Files.isExecutable(Path.of(path, "g++")));
    Assumptions.assumeTrue(compiler, "no g++ to build a mutant with");
    ProcessBuilder builder =
        new ProcessBuilder(
            "bash",
            KERNELS.resolve("src/test/emulator/mutants.sh").toString(),
            LIBRARIES.toString(),
            KERNELS.resolve("target/emulator").toString(),
            mutant);
    builder.environment().remove("LD_LIBRARY_PATH");
    Process build = builder.inheritIO().start();
    assertTrue(build.waitFor(10, TimeUnit.MINUTES));
    assertEquals(0, build.exitValue());
    return Map.of(
        "EMU_MUTANT",
        LIBRARIES.resolve(mutant + ".so").toString(),
        "EMU_SCHEDULE",
        "1", // in reverse, so that a missing barrier shows
        "LOUPE_CACHE",
        folder.resolve("cache").toString());
  }

  private Ran run(Map<String, String> environment, Object... command) throws Exception {
    // the doctor does without the demo model
    List<String> flags = List.of("-Dloupe.home=" + folder);
    return new Child(folder).run(Child.java(Main.class, flags, command), environment);
  }

  @Test
  void anotherVariantServes() throws Exception {
    anotherVariantServes("v3-no-barrier-before-tile", "attention", "v3 f32");
  }

  @ParameterizedTest
  @Tag("exhaustive")
  @CsvSource({
    "linear-v4-low-part-of-W-lost, linear, v4 f32",
    "linear-v3-no-barrier-before-products, linear, v3 f16",
    "gemv-no-end-of-W, gemv, v1 f32",
    "layernorm-v3-halves-swapped, layernorm, v3 f32",
    "decode-mask-off-by-one, attention_decode, v1 f32",
    "map-v2-no-barrier-before-tile, attention_map, v2 f32",
    "stats-v2-no-barrier-before-tile, attention_stats, v2 f32",
    "embedding-no-end-of-table, embedding, v1 f32",
    "pointwise-gelu-constant, pointwise, activate f32",
    "repack-no-barrier, weights, repack f32",
    "epilogue-no-bias, epilogue, v1 f32"
  })
  void anotherVariantServes(String mutant, String family, String variant) throws Exception {
    Map<String, String> environment = environment(mutant);
    Ran ran = run(environment, generate("cuda")).well();
    assertEquals(text, ran.out(), ran.err());
    String doctor = run(environment, "doctor").out();
    for (String f : SelfTest.families()) {
      String verdict = f.equals(family) ? "WRONG: " + variant + " (" : "ok: ";
      assertTrue(
          doctor.lines().anyMatch(l -> l.strip().startsWith(f + " ") && l.contains(verdict)),
          f + "\n" + doctor);
    }
  }

  @Test
  void theCpuServesWhereEveryVariantIsWrong() throws Exception {
    Map<String, String> environment = environment("common-own-key-lost");
    Ran auto = run(environment, generate("auto")).well();
    assertEquals(text, auto.out(), auto.err());
    String why = "no kernel of attention in f32 computes rightly on Loupe CPU emulator (";
    assertTrue(auto.err().contains("not the GPU: " + why), auto.err());
    run(environment, generate("cuda")).refused(4, why);
  }
}
