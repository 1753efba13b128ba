package dev.loupe.cuda.selftest;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import dev.loupe.cuda.emulator.ChildJvm;
import dev.loupe.cuda.emulator.EmulatorScript;
import dev.loupe.cuda.emulator.OnDevice;
import dev.loupe.cuda.selftest.KernelMutants.Mutant;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/**
 * Each known bug in the place of the right kernel is condemned by the self-test that users run, and
 * none of the family's other variants is.
 */
@OnDevice(emulated = true)
class KernelMutantsTest {
  private static final Path LIBRARIES = Path.of("target", "mutants").toAbsolutePath();
  private static final Path STAND_IN = Path.of("target", "emulator").toAbsolutePath();

  /** A barrier, a tail, a fragment, digits, a scale, a bound. */
  private static final Set<String> SOME =
      Set.of(
          "v4-copy-before-barrier",
          "v6-no-fence-for-async-reads",
          "v6-free-too-early",
          "linear-v4-low-part-of-x-lost",
          "gemv-scale-forgotten",
          "gemv-no-wait-for-previous",
          "gemv-x-before-the-wait",
          "decode-no-tail-predicate",
          "sample-options-of-the-first-row",
          "pointwise-beyond-the-end");

  @BeforeAll
  static void sources() {
    assumeTrue(Files.isDirectory(Path.of("src")), "not in a checkout");
  }

  @Test
  void someAreCondemned(@TempDir Path temporary) throws Exception {
    List<Mutant> some = KernelMutants.all().stream().filter(m -> SOME.contains(m.name())).toList();
    assertEquals(SOME.size(), some.size());
    assertCondemned(some, temporary);
  }

  @Test
  @Tag("exhaustive")
  void allAreCondemned(@TempDir Path temporary) throws Exception {
    List<Mutant> all = KernelMutants.all();
    assertTrue(all.size() > 140, "there are " + all.size());
    assertCondemned(all, temporary);
  }

  private static void assertCondemned(List<Mutant> mutants, Path temporary) throws Exception {
    List<String> names = mutants.stream().map(Mutant::name).toList();
    List<String> arguments = new ArrayList<>(List.of(STAND_IN.toString()));
    arguments.addAll(names);
    EmulatorScript.run("mutants.sh", LIBRARIES, arguments);
    arguments.set(0, LIBRARIES.toString());
    String output =
        ChildJvm.run(
            KernelMutants.class,
            // what a wrong kernel does is not recorded for the replays
            Map.of("EMU_RECORD", ""),
            temporary,
            arguments.toArray(String[]::new));
    assertTrue(output.endsWith("exit 0\n"), output);
    assertEquals(List.of(), KernelMutants.unexpected(mutants, output), output);
  }
}
