package dev.loupe;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.loupe.model.Golden;
import java.io.IOException;
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
import org.junit.jupiter.api.Test;

/** What the documents say is so. */
class DocumentationTest {
  private static final Path ROOT = Checkout.ROOT;

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
