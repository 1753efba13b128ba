package dev.loupe;

import static java.nio.charset.StandardCharsets.UTF_8;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.loupe.model.Golden;
import java.io.File;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.stream.Collectors;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** A program that has Loupe on its module path, with no flags but those of the README. */
class ModulePathTest {
  private static final String PROGRAM =
      """
      import dev.loupe.*;
      import dev.loupe.attention.AttentionSelection;
      import dev.loupe.sampling.Sampling;
      import java.nio.file.Path;

      void main(String[] args) throws Exception {
        IO.println(Loupe.class.getModule());
        Options options = Options.defaults().backend(Backend.valueOf(args[1]));
        try (Loupe loupe = Loupe.open(Path.of(args[0]), options)) {
          IO.println(loupe.info().device());
          IO.println(loupe.generate("ROMEO:", Sampling.greedy(), 5, AttentionSelection.all()).text());
        }
      }
      """;

  /** What only tests need, and what the natives of other platforms are. */
  private static final List<String> TESTS_ONLY =
      List.of("test-classes", "-tests.jar", "junit", "jmh", "selenium", "slf4j-nop", "guava");

  @TempDir Path folder;

  private List<String> run(String backend) throws Exception {
    Path program = Files.writeString(folder.resolve("Program.java"), PROGRAM);
    String modules =
        Arrays.stream(System.getProperty("java.class.path").split(File.pathSeparator))
            .filter(part -> TESTS_ONLY.stream().noneMatch(part::contains))
            .collect(Collectors.joining(File.pathSeparator));
    List<String> words = new ArrayList<>();
    words.add(Path.of(System.getProperty("java.home"), "bin", "java").toString());
    words.addAll(List.of("--module-path", modules));
    words.addAll(List.of("--add-modules", "dev.loupe.engine,jdk.incubator.vector"));
    words.add(
        "--enable-native-access=ALL-UNNAMED,dev.loupe.engine,dev.loupe.kernels,jcuda,jcublas,ai.djl.tokenizers");
    words.addAll(List.of(program.toString(), Golden.DEMO_MODEL.toString(), backend));
    ProcessBuilder builder = new ProcessBuilder(words);
    builder.redirectError(folder.resolve("err").toFile());
    Process process = builder.start();
    process.getOutputStream().close();
    String out = new String(process.getInputStream().readAllBytes(), UTF_8);
    String err = Files.readString(folder.resolve("err"));
    assertEquals(0, process.waitFor(), out + err);
    return out.lines().toList();
  }

  @Test
  void runsOnTheCpuWithVectors() throws Exception {
    List<String> lines = run("CPU");
    assertEquals("module dev.loupe.engine", lines.getFirst());
    assertTrue(lines.get(1).contains("-bit vectors"), lines.get(1));
    assertTrue(String.join("\n", lines).contains("What,"), lines.toString());
  }

  /** JCuda's native libraries lie in modules of their own. */
  @Test
  @OnGpu
  void runsOnTheGpu() throws Exception {
    EmulatedGpu.require();
    List<String> lines = run("CUDA");
    assertEquals("module dev.loupe.engine", lines.getFirst());
    assertTrue(String.join("\n", lines).contains("What,"), lines.toString());
  }
}
