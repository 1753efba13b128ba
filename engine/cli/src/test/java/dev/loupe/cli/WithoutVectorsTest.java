package dev.loupe.cli;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.loupe.Loupe;
import dev.loupe.generate.GenerateRequest;
import dev.loupe.model.Golden;
import dev.loupe.sampling.Sampling;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.Test;

/** A Java without the incubator module runs the scalar loops, and writes the same text. */
class WithoutVectorsTest {
  @Test
  void writesTheSameText() throws Exception {
    String expected;
    try (Loupe loupe = Loupe.open(Golden.DEMO_MODEL)) {
      assertTrue(loupe.info().device().contains("-bit vectors"), loupe.info().device());
      expected =
          loupe
              .run(GenerateRequest.text("KING:").tokens(30).sampling(Sampling.greedy()))
              .getFirst()
              .text();
    }
    Ran ran = loupe("generate", "KING:", "-n", "30", "--greedy");
    assertTrue(ran.said.contains("plain loops"), ran.said);
    assertEquals(expected, ran.text);
  }

  /** Plain loops say little of what the machine can do. */
  @Test
  void measuresWithoutCeilings() throws Exception {
    String json = loupe("bench", "prefill", "--prompt-tokens", "8", "--runs", "1", "--json").text;
    assertTrue(json.contains("\"ceilings\":null") && json.contains("\"vector_bits\":0"), json);
  }

  /** A ladder without vectors, whose candidates are held to the same answers. */
  @Test
  void comparesWithoutCeilings() throws Exception {
    String json =
        java(
                "bench",
                "gelu",
                "--shapes",
                "R=2,C=17",
                "--samples",
                "5",
                "--seconds",
                "0.1",
                "--threads",
                "2",
                "--json")
            .text;
    assertTrue(json.contains("\"variant\":\"threads\""), json);
    assertTrue(json.contains("\"roofline\":null") && !json.contains("\"vector\""), json);
    assertTrue(!json.contains("wrong"), json);
  }

  private record Ran(String text, String said) {}

  private static Ran loupe(String... command) throws Exception {
    List<String> words = new ArrayList<>(List.of(command));
    words.addAll(List.of("-m", Golden.DEMO_MODEL.toString()));
    return java(words.toArray(String[]::new));
  }

  private static Ran java(String... command) throws Exception {
    List<String> words =
        new ArrayList<>(
            List.of(
                Path.of(System.getProperty("java.home"), "bin", "java").toString(),
                "--enable-native-access=ALL-UNNAMED",
                "-cp",
                System.getProperty("java.class.path"),
                "dev.loupe.cli.Main"));
    words.addAll(List.of(command));
    words.addAll(List.of("--backend", "cpu"));
    Process process = new ProcessBuilder(words).start();
    process.getOutputStream().close();
    String text = new String(process.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
    String said = new String(process.getErrorStream().readAllBytes(), StandardCharsets.UTF_8);
    assertEquals(0, process.waitFor(), said);
    return new Ran(text, said);
  }
}
