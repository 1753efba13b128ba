package dev.loupe.cuda.measure;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import dev.loupe.cuda.emulator.EmulatorScript;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;

/** The counts that README.md shows: how they are made is right, and they are up to date. */
@Tag("sweep")
class CountsTest {
  private static final Path LIBRARY = Path.of("target", "sanitizers", "count");

  private static String compiler = "";
  private static List<Counts> made = List.of();

  @BeforeAll
  static void count() throws Exception {
    EmulatorScript.run("count.sh");
    Path output = LIBRARY.resolve("counts");
    ProcessBuilder builder =
        new ProcessBuilder(
            Path.of(System.getProperty("java.home"), "bin", "java").toString(),
            "--enable-native-access=ALL-UNNAMED",
            "-XX:TieredStopAtLevel=1",
            "-cp",
            System.getProperty("java.class.path"),
            CountingRun.class.getName());
    builder.environment().put("LD_LIBRARY_PATH", LIBRARY.toAbsolutePath().toString());
    Process process = builder.redirectErrorStream(true).redirectOutput(output.toFile()).start();
    assertTrue(process.waitFor(5, TimeUnit.MINUTES), "still running");
    String text = Files.readString(output, StandardCharsets.UTF_8);
    assertEquals(0, process.exitValue(), text);
    compiler = text.lines().findFirst().orElseThrow();
    made = text.lines().skip(1).map(Counts::parse).toList();
  }

  @Test
  void globalAccessesAreCountedInSectors() {
    assertEquals(32, self("global 0").read());
    assertEquals(4 * 32, self("global 1").read());
    assertEquals(32 * 32, self("global 8").read());
    assertEquals(4 * 32, self("global 8").written());
    assertEquals(16 * 32, self("vector 1").read());
    assertEquals(32 * 32, self("vector 2").read());
    assertEquals(16 * 32, self("vector 2").written());
  }

  /** A warp takes 32 words at once, so 8 bytes a lane cost 2 wavefronts and 16 bytes cost 4. */
  @Test
  void sharedAccessesAreCountedInWavefronts() {
    assertShared("shared 4 0", 1, 0);
    assertShared("shared 4 4", 1, 0);
    assertShared("shared 4 8", 2, 1);
    assertShared("shared 4 128", 32, 31);
    assertShared("shared 8 8", 2, 0);
    assertShared("shared 8 16", 4, 2);
    assertShared("shared 16 16", 4, 0);
    assertShared("shared 16 32", 8, 4);
    assertShared("shared 16 144", 4, 0);
  }

  @Test
  void copiesAndMatricesAreCounted() {
    assertShared("tensor 16", 4 + 4, 0);
    assertShared("tensor 128", 4 + 32, 28);
    Counts tensor = self("tensor 16");
    assertEquals(20 * 16, tensor.read(), "20 lanes copy 16 bytes each, 12 read nothing");
    assertEquals(16 * 8 * 16, tensor.tensorMultiplyAdds());
    assertEquals(16, tensor.multiplyAdds());
    assertEquals(16, tensor.exponentials());
  }

  @Test
  void lanesPairUpAnewWhereTheyMeet() {
    assertEquals((31 + 1) * 32, self("diverged").read());
  }

  @Test
  void arithmeticAgreesWithFormulas() {
    long pairs = 256 * 257 / 2;
    assertEquals(2 * pairs * 64, made("attention", "v1").multiplyAdds());
    assertEquals(pairs, made("attention", "v1").exponentials());
    // one of four products of q and k is added by itself
    assertEquals(pairs * 64 * 7 / 4, made("attention", "v2").multiplyAdds());
    long tiles = 1 + 2 + 3 + 4; // of 64 rows and 64 keys
    assertEquals(tiles * 2 * 64 * 64 * 64, made("attention", "v4").tensorMultiplyAdds());
    assertEquals(64 * 256 * 256, made("linear", "v1").multiplyAdds());
    assertEquals(64 * 256 * 256, made("linear", "v2").multiplyAdds());
    assertEquals(128 * 256 * 256, made("linear", "v3").multiplyAdds(), "a whole tile");
    assertEquals(128 * 256 * 256, made("linear", "v4").tensorMultiplyAdds(), "a whole tile");
    assertEquals(768 * 1024, made("gemv", "v1").multiplyAdds(), "768 in whole chunks of 512");
  }

  @Test
  void trafficAgreesWithFormulas() {
    // a warp reads a column of W, and one value of x
    assertEquals((32 + 1) * 32L * 256 * 64 * 256 / 32 + 64 * 256 * 4, made("linear", "v1").read());
    // one row a lane: three passes take a sector for each value; gamma and beta one for each warp
    assertEquals((3 * 64 + 2 * 2) * 768 * 32, made("layernorm", "v1").read());
    // K and V of the tiles; q in requests of half sectors; the 4 numbers of a segment by 16 warps
    long tiles = 1 + 2 + 3 + 4;
    assertEquals(
        tiles * 2 * 64 * 128 + 2 * 256 * 128 + 16 * 4 * 32, made("attention", "v4").read());
    for (Counts c : made) {
      if (!c.family().equals(CountingRun.SELF)) {
        assertTrue(c.read() >= c.leastRead(), () -> "reads less than its inputs: " + c);
        assertTrue(c.written() >= c.leastWritten(), () -> "writes less than its outputs: " + c);
      }
    }
  }

  /** counts.tsv, and so README.md, has what was counted now. */
  @Test
  void fileIsUpToDate() throws Exception {
    String recorded = Counts.compilerOfCommitted();
    assumeTrue(
        compiler.equals(recorded),
        () -> "counts.tsv comes from %s, this is %s".formatted(recorded, compiler));
    String now =
        Counts.file(
            compiler, made.stream().filter(c -> !c.family().equals(CountingRun.SELF)).toList());
    assertEquals(
        Files.readString(Path.of("counts.tsv")), now, () -> "counts.tsv should be:\n\n" + now);
  }

  private static void assertShared(String name, long wavefronts, long conflicts) {
    assertEquals(wavefronts, self(name).wavefronts(), name);
    assertEquals(conflicts, self(name).conflicts(), name);
  }

  private static Counts self(String name) {
    return made(CountingRun.SELF, name);
  }

  private static Counts made(String family, String variant) {
    return made.stream()
        .filter(c -> c.family().equals(family) && c.variant().equals(variant))
        .findFirst()
        .orElseThrow();
  }
}
