package dev.loupe.bench;

import static java.nio.charset.StandardCharsets.UTF_8;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import dev.loupe.Checkout;
import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;

/** {@code scripts/compare-pytorch} for somebody who has no PyTorch. */
class ComparePyTorchTest {
  private static final String SCRIPT = Checkout.ROOT.resolve("scripts/compare-pytorch").toString();

  /** Python's own modules only: PyTorch may well be installed here. */
  private static final List<String> BARE = List.of("python3", "-S", "-I");

  private record Ran(int code, String out) {}

  @BeforeAll
  static void python() {
    boolean there;
    try {
      there = run("-c", "pass").code == 0;
    } catch (IOException | InterruptedException e) {
      there = false;
    }
    assumeTrue(there, "python3 is not installed here");
  }

  private static Ran run(String... words) throws IOException, InterruptedException {
    List<String> command = new ArrayList<>(BARE);
    command.addAll(List.of(words));
    Process process = new ProcessBuilder(command).redirectErrorStream(true).start();
    process.getOutputStream().close();
    String out = new String(process.getInputStream().readAllBytes(), UTF_8);
    return new Ran(process.waitFor(), out);
  }

  private static void refuses(int code, String words, String... options)
      throws IOException, InterruptedException {
    List<String> all = new ArrayList<>(List.of(SCRIPT));
    all.addAll(List.of(options));
    Ran ran = run(all.toArray(String[]::new));
    assertEquals(1, ran.out.lines().count(), ran.out);
    assertTrue(ran.out.contains(words), ran.out);
    assertEquals(code, ran.code, ran.out);
  }

  @Test
  void saysThatPyTorchIsMissing() throws Exception {
    refuses(4, "PyTorch 2.3 or newer is missing for", "--device", "cpu", "--rounds", "1");
    refuses(4, "pip install torch transformers");
  }

  /** gpu-verify takes 77 for a stage that was skipped, and the last line for the reason. */
  @Test
  void saysSoToGpuVerify() throws Exception {
    refuses(77, "PyTorch 2.3 or newer is missing for", "--device", "cuda", "--lines", "90");
  }

  @Test
  void refusesWhatItDoesNotKnow() throws Exception {
    refuses(2, "--dtype: invalid choice: 'int8'", "--dtype", "int8");
    refuses(2, "--rounds: '0' is not 1 or more", "--rounds", "0");
    refuses(2, "unrecognized arguments: --shape-s", "--shape-s");
    Ran help = run(SCRIPT, "--help");
    assertEquals(0, help.code);
    assertTrue(help.out.contains("--shapes"), help.out);
  }
}
