package dev.loupe;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.loupe.model.Golden;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.PrintStream;
import java.net.URL;
import java.net.URLClassLoader;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import java.util.Locale;
import java.util.Set;
import java.util.TreeSet;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import javax.tools.JavaCompiler;
import javax.tools.ToolProvider;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** What the documents say is so. */
class DocumentationTest {
  private static final Path ROOT = Checkout.ROOT;

  @TempDir Path folder;

  /** The README's Java compiles as it stands, runs on the demo model, and prints what it says. */
  @Test
  void theJavaSnippetRuns() throws Exception {
    String readme = Files.readString(ROOT.resolve("README.md"));
    Matcher block = Pattern.compile("```java\n(.*?)```", Pattern.DOTALL).matcher(readme);
    assertTrue(block.find(), "README.md has a Java snippet");
    String snippet = block.group(1);
    assertTrue(snippet.contains("\"test-data/shakespeare\""), snippet);
    String source = snippet.replace("\"test-data/", "\"../test-data/");
    Path file = folder.resolve("Example.java");
    Files.writeString(file, source);
    JavaCompiler compiler = ToolProvider.getSystemJavaCompiler();
    assertNotNull(compiler, "tests run on a JDK");
    ByteArrayOutputStream errors = new ByteArrayOutputStream();
    int rc =
        compiler.run(
            null,
            errors,
            errors,
            "-cp",
            System.getProperty("java.class.path"),
            "-d",
            folder.toString(),
            file.toString());
    assertEquals(0, rc, errors.toString(StandardCharsets.UTF_8));
    ByteArrayOutputStream printed = new ByteArrayOutputStream();
    PrintStream out = System.out;
    try (URLClassLoader loader =
        new URLClassLoader(
            new URL[] {folder.toUri().toURL()}, DocumentationTest.class.getClassLoader())) {
      System.setOut(new PrintStream(printed, true, StandardCharsets.UTF_8));
      loader
          .loadClass("Example")
          .getMethod("main", String[].class)
          .invoke(null, (Object) new String[0]);
    } finally {
      System.setOut(out);
    }
    Matcher said = Pattern.compile("```text\n(.*?)```", Pattern.DOTALL).matcher(readme);
    assertTrue(said.find(block.end()), "what it prints follows the snippet");
    assertEquals(said.group(1), printed.toString(StandardCharsets.UTF_8));
  }

  @Test
  void linksLeadSomewhere() throws Exception {
    List<String> broken = new ArrayList<>();
    try (Stream<Path> files = Files.walk(ROOT, 3)) {
      for (Path file :
          files
              .filter(f -> f.toString().endsWith(".md") && !f.toString().contains("target"))
              .toList()) {
        Matcher link =
            Pattern.compile("]\\(([^)#:]*)(?:#([^)]*))?\\)").matcher(Files.readString(file));
        while (link.find()) {
          Path to = link.group(1).isEmpty() ? file : file.resolveSibling(link.group(1));
          if (!Files.exists(to)
              || (link.group(2) != null && !anchors(to).contains(link.group(2)))) {
            broken.add(file + ": " + link.group());
          }
        }
      }
    }
    assertEquals(List.of(), broken);
  }

  /** What the headings of a page are called in links. */
  private static Set<String> anchors(Path page) throws IOException {
    return Pattern.compile("(?m)^#+ (.*)$")
        .matcher(Files.readString(page))
        .results()
        .map(heading -> heading.group(1).toLowerCase(Locale.ROOT))
        .map(heading -> heading.replaceAll("[^a-z0-9 -]", "").replace(' ', '-'))
        .collect(Collectors.toSet());
  }

  @Test
  void testDataIsWhatItsReadmeSays() throws Exception {
    Matcher line =
        Pattern.compile("([0-9a-f]{64})  (\\S+)")
            .matcher(Files.readString(Golden.TEST_DATA.resolve("README.md")));
    TreeSet<String> listed = new TreeSet<>();
    while (line.find()) {
      byte[] bytes = Files.readAllBytes(Golden.TEST_DATA.resolve(line.group(2)));
      String hash = HexFormat.of().formatHex(MessageDigest.getInstance("SHA-256").digest(bytes));
      assertEquals(line.group(1), hash, line.group(2));
      listed.add(line.group(2));
    }
    TreeSet<String> there = new TreeSet<>();
    long size = 0;
    try (Stream<Path> files = Files.walk(Golden.TEST_DATA)) {
      for (Path file : files.filter(Files::isRegularFile).toList()) {
        there.add(Golden.TEST_DATA.relativize(file).toString().replace('\\', '/'));
        size += Files.size(file);
      }
    }
    there.remove("README.md");
    assertEquals(there, listed);
    assertTrue(size < 16_000_000, size + " bytes of test data");
  }
}
