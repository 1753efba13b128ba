package dev.loupe;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.loupe.model.Golden;
import dev.loupe.sampling.Sampling;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import org.junit.jupiter.api.Test;

/** A Java without the incubator module runs the scalar loops, and writes the same text. */
class WithoutVectorsTest {
  @Test
  void writesTheSameText() throws Exception {
    String expected;
    try (Loupe loupe = Loupe.open(Golden.DEMO_MODEL)) {
      assertTrue(loupe.info().device().contains("-bit vectors"), loupe.info().device());
      expected =
          loupe.run(Request.text("KING:").tokens(30).sampling(Sampling.greedy())).getFirst().text();
    }
    Process process =
        new ProcessBuilder(
                Path.of(System.getProperty("java.home"), "bin", "java").toString(),
                "--enable-native-access=ALL-UNNAMED",
                "-cp",
                System.getProperty("java.class.path"),
                "dev.loupe.cli.Main",
                "generate",
                "KING:",
                "-n",
                "30",
                "--greedy",
                "-m",
                Golden.DEMO_MODEL.toString())
            .start();
    process.getOutputStream().close();
    String text = new String(process.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
    String said = new String(process.getErrorStream().readAllBytes(), StandardCharsets.UTF_8);
    assertEquals(0, process.waitFor(), said);
    assertTrue(said.contains("no vectors"), said);
    assertEquals(expected, text);
  }
}
