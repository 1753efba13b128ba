package dev.loupe;

import static java.nio.charset.StandardCharsets.UTF_8;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.loupe.attention.AttentionSelection;
import dev.loupe.attention.HeadScore;
import dev.loupe.generate.GenerateRequest;
import dev.loupe.generate.Generation;
import dev.loupe.generate.Prompt;
import dev.loupe.interpret.Lens;
import dev.loupe.model.Golden;
import dev.loupe.sampling.Sampling;
import java.io.File;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Programs that have Loupe as a library: the README's, and the examples. */
class LibraryTest {
  private static final String MODEL = Golden.DEMO_MODEL.toAbsolutePath().toString();
  private static final String TEXT = "To be, or not to be: that is the";

  /** What only tests need. */
  private static final List<String> TESTS_ONLY =
      List.of("test-classes", "-tests.jar", "junit", "jmh", "selenium", "slf4j-nop", "guava");

  private static final List<String> NATIVE_ACCESS =
      List.of("dev.loupe.engine", "dev.loupe.cuda", "jcuda", "jcublas", "ai.djl.tokenizers");

  @TempDir Path folder;

  /** The class path of a project with nothing but Loupe. */
  private static List<String> jars() {
    return Arrays.stream(System.getProperty("java.class.path").split(File.pathSeparator))
        .filter(part -> TESTS_ONLY.stream().noneMatch(part::contains))
        .map(part -> Path.of(part).toAbsolutePath().toString())
        .toList();
  }

  private static List<String> onClassPath(List<String> more) {
    String path =
        Stream.concat(jars().stream(), more.stream())
            .collect(Collectors.joining(File.pathSeparator));
    return List.of(
        "--add-modules",
        "jdk.incubator.vector",
        "--enable-native-access=ALL-UNNAMED",
        "--class-path",
        path);
  }

  private static List<String> onModulePath() {
    return List.of(
        "--add-modules",
        "dev.loupe.engine,jdk.incubator.vector",
        "--enable-native-access=ALL-UNNAMED," + String.join(",", NATIVE_ACCESS),
        "--module-path",
        String.join(File.pathSeparator, jars()));
  }

  /** What a program prints, run from its source in the root of the checkout. */
  private String run(List<String> options, Path program, String... args) throws Exception {
    List<String> words = new ArrayList<>();
    words.add(Path.of(System.getProperty("java.home"), "bin", "java").toString());
    words.addAll(options);
    words.add(program.toString());
    words.addAll(List.of(args));
    Path err = folder.resolve("err");
    ProcessBuilder builder = new ProcessBuilder(words).redirectError(err.toFile());
    Process process = builder.directory(Checkout.ROOT.toFile()).start();
    process.getOutputStream().close();
    String out = new String(process.getInputStream().readAllBytes(), UTF_8);
    List<String> complaints =
        Files.readAllLines(err).stream()
            .filter(line -> !line.equals("WARNING: Using incubator modules: jdk.incubator.vector"))
            .filter(line -> !line.contains("SLF4J(W): ")) // of a project without a provider
            .toList();
    assertEquals(0, process.waitFor(), out + complaints);
    assertEquals(List.of(), complaints);
    return out;
  }

  private static String readme() throws Exception {
    return Files.readString(Checkout.ROOT.resolve("README.md"));
  }

  private static String block(String language) throws Exception {
    Matcher block =
        Pattern.compile("```java\n(.*?)```.*?```text\n(.*?)```", Pattern.DOTALL).matcher(readme());
    assertTrue(block.find(), "README.md has a Java snippet, and what it prints");
    return block.group(language.equals("java") ? 1 : 2);
  }

  private Path snippet() throws Exception {
    return Files.writeString(folder.resolve("Example.java"), block("java"));
  }

  @Test
  void theReadmesSnippetRunsOnTheModulePath() throws Exception {
    assertEquals(block("text"), run(onModulePath(), snippet()));
  }

  /** The logging backend of the project is the only one. */
  @Test
  void theReadmesSnippetRunsBesideLogback() throws Exception {
    List<String> logback;
    try (Stream<Path> files = Files.list(Path.of("target", "logback"))) {
      logback = files.map(file -> file.toAbsolutePath().toString()).toList();
    }
    assertEquals(2, logback.size(), logback.toString());
    Path conf = Files.createDirectory(folder.resolve("conf"));
    Files.writeString(
        conf.resolve("logback.xml"), "<configuration><root level=\"OFF\"/></configuration>");
    List<String> more = new ArrayList<>(logback);
    more.add(conf.toString());
    assertEquals(block("text"), run(onClassPath(more), snippet()));
    Path which =
        Files.writeString(
            folder.resolve("Which.java"),
            """
            void main() {
              IO.println(org.slf4j.LoggerFactory.getILoggerFactory().getClass().getName());
            }
            """);
    assertEquals("ch.qos.logback.classic.LoggerContext", run(onClassPath(more), which).strip());
  }

  /** No HTTP, no command line, no page, and natives of this platform alone. */
  @Test
  void theLibraryBringsLittle() {
    List<String> names = jars().stream().map(jar -> Path.of(jar).getFileName().toString()).toList();
    for (String absent : List.of("netty", "picocli", "slf4j-nop", "logback", "jinjava", "scala")) {
      assertTrue(names.stream().noneMatch(name -> name.contains(absent)), absent + ": " + names);
    }
    assertTrue(names.stream().filter(name -> name.contains("jcuda-natives")).count() <= 1);
  }

  /** JCuda's native libraries lie in modules of their own. */
  @Tag("sweep")
  @Test
  @OnGpu
  void theGpuIsFoundFromTheModulePath() throws Exception {
    EmulatedGpu.require();
    Path program =
        Files.writeString(
            folder.resolve("OnGpu.java"),
            """
            import dev.loupe.*;
            import dev.loupe.attention.AttentionSelection;
            import dev.loupe.sampling.Sampling;
            import java.nio.file.Path;

            void main(String[] args) throws Exception {
              Options options = Options.defaults().backend(Backend.CUDA);
              try (Loupe loupe = Loupe.open(Path.of(args[0]), options)) {
                IO.println(Loupe.class.getModule());
                IO.println(
                    loupe.generate("ROMEO:", Sampling.greedy(), 5, AttentionSelection.all()).text());
              }
            }
            """);
    Path model = TinyModel.in(folder).folder(); // the demo model takes the emulator 20 s
    String out = run(onModulePath(), program, model.toString());
    try (Loupe loupe = Loupe.open(model, Options.defaults().backend(Backend.CPU))) {
      String text = loupe.generate("ROMEO:", Sampling.greedy(), 5, AttentionSelection.all()).text();
      assertEquals("module dev.loupe.engine\n" + text + "\n", out);
    }
  }

  private static Path example(String name) {
    return Checkout.ROOT.toAbsolutePath().resolve("engine/examples").resolve(name + ".java");
  }

  @Test
  void theExamplesAreShortAndAllAreRunHere() throws Exception {
    try (Stream<Path> files = Files.list(example("Batch").getParent())) {
      List<Path> all = files.sorted().toList();
      assertEquals(
          List.of("Batch.java", "Generate.java", "Heads.java", "Lens.java", "Maps.java"),
          all.stream().map(file -> file.getFileName().toString()).toList());
      for (Path file : all) {
        assertTrue(Files.readAllLines(file).size() < 60, file.toString());
      }
    }
  }

  @Test
  void generate() throws Exception {
    String out = run(onClassPath(List.of()), example("Generate"), MODEL, "ROMEO:");
    try (Loupe loupe = Loupe.open(Golden.DEMO_MODEL)) {
      Sampling sampling = Sampling.seeded(1).withTemperature(0.8).withTopK(40);
      GenerateRequest request =
          GenerateRequest.text("ROMEO:").tokens(30).samples(2).sampling(sampling);
      StringBuilder expected = new StringBuilder();
      List<Generation> runs = loupe.run(request);
      for (Generation run : runs) {
        expected.append("%d: %s%n".formatted(run.sample(), run.text().replace("\n", "\\n")));
      }
      expected.append("heard: ").append(runs.getFirst().text().replace("\n", "\\n")).append("\n");
      assertEquals(expected.toString(), out);
    }
  }

  @Test
  void maps() throws Exception {
    Path map = folder.resolve("map.png");
    String out = run(onClassPath(List.of()), example("Maps"), MODEL, TEXT, map.toString());
    assertTrue(out.contains("reads"), out);
    try (Loupe loupe = Loupe.open(Golden.DEMO_MODEL)) {
      assertEquals(loupe.tokenizer().encode(TEXT, false).length, out.lines().count());
    }
    byte[] png = Files.readAllBytes(map);
    assertEquals("PNG", new String(png, 1, 3, UTF_8));
  }

  @Test
  void heads() throws Exception {
    String text = (TEXT + " question.\n").repeat(5);
    String out = run(onClassPath(List.of()), example("Heads"), MODEL, text);
    assertEquals(HeadScore.values().length, out.lines().count());
    assertTrue(out.contains("INDUCTION: head "), out);
  }

  @Test
  void lens() throws Exception {
    String out = run(onClassPath(List.of()), example("Lens"), MODEL, TEXT);
    try (Loupe loupe = Loupe.open(Golden.DEMO_MODEL)) {
      Lens lens = loupe.lens(Prompt.text(TEXT), -1, -1, 3);
      assertTrue(out.startsWith("the model says " + lens.label() + "\n"), out);
      assertEquals(1 + lens.layers().size(), out.lines().count());
      assertTrue(out.strip().endsWith("rank of %s: 0".formatted(lens.label())), out);
    }
  }

  @Test
  void batch() throws Exception {
    Path lines = Files.writeString(folder.resolve("lines.txt"), "ROMEO:\n\nTo be, or not to be\n");
    String out = run(onClassPath(List.of()), example("Batch"), MODEL, lines.toString());
    assertEquals(3, out.lines().count(), out);
    try (Loupe loupe = Loupe.open(Golden.DEMO_MODEL)) {
      int tokens = loupe.tokenizer().encode("ROMEO:", false).length;
      assertTrue(out.startsWith("ROMEO:: %d tokens, perplexity ".formatted(tokens)), out);
    }
    assertTrue(out.contains(": the text is empty"), out);
  }
}
