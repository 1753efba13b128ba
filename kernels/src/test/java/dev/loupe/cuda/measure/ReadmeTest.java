package dev.loupe.cuda.measure;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.loupe.cuda.driver.Element;
import dev.loupe.cuda.driver.Variant;
import dev.loupe.cuda.kernels.KernelCatalogue;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.IntSummaryStatistics;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.function.ToLongFunction;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;

/** The tables in README.md are those of the catalogue, of the compiler and of the emulator. */
class ReadmeTest {
  private final List<String[]> resources;
  private final List<Counts> counts;

  ReadmeTest() throws IOException {
    resources =
        Files.readAllLines(Path.of("resources.tsv")).stream()
            .map(line -> line.split("\t", -1))
            .filter(row -> row.length == 7 && target(row[0]).equals(row[1]))
            .toList();
    counts = Counts.committed();
  }

  @Test
  void tablesAreUpToDate() throws IOException {
    String readme = Files.readString(Path.of("README.md"));
    String missing =
        KernelCatalogue.all().stream()
            .map(Variant::family)
            .distinct()
            .map(family -> ladder(family) + "\n" + countsOf(family))
            .filter(tables -> !readme.contains(tables))
            .collect(Collectors.joining("\n"));
    assertEquals("", missing, "README.md lacks these tables, or has older ones");
  }

  /** {@link LadderFigures} draws them anew; a picture that no page shows is one too many. */
  @Test
  void figuresAreUpToDate() throws IOException {
    Map<String, String> drawn = LadderFigures.all();
    String readme = Files.readString(Path.of("README.md"));
    for (Map.Entry<String, String> figure : drawn.entrySet()) {
      Path file = LadderFigures.FOLDER.resolve(figure.getKey());
      assertEquals(figure.getValue(), Files.readString(file), file.toString());
      assertTrue(readme.contains("(doc/%s)".formatted(figure.getKey())), figure.getKey());
    }
    try (Stream<Path> files = Files.list(LadderFigures.FOLDER)) {
      assertEquals(drawn.size(), files.count());
    }
  }

  /** README.md says so in a sentence. */
  @Test
  void noKernelSpills() {
    String spilling =
        resources.stream()
            .filter(row -> !"0 0".equals(row[4] + " " + row[5]))
            .map(row -> "%s %s %s".formatted(row[0], row[4], row[5]))
            .collect(Collectors.joining("; "));
    assertEquals("", spilling);
  }

  private String ladder(String family) {
    StringBuilder table =
        new StringBuilder(
            """
            | %s | idea, and what is new | limits | elements | from | registers | GPU |
            |---|---|---|---|---|---|---|
            """
                .formatted(family));
    for (Variant v : KernelCatalogue.of(family)) {
      table.append(
          "| %s | %s | %s | %s | sm_%d%s | %s | not yet measured |\n"
              .formatted(
                  v.name(),
                  v.idea(),
                  v.limits().isEmpty() ? "none" : v.limits(),
                  v.elements().stream()
                      .sorted()
                      .map(Element::suffix)
                      .collect(Collectors.joining(" ")),
                  v.minComputeCapability(),
                  v.runsOn(v.minComputeCapability() + 10) ? "" : "a", // of one card alone
                  registers(v)));
    }
    return table.toString();
  }

  /** The target that a kernel's registers are told of. */
  private static String target(String kernel) {
    return kernel.startsWith("attention_v6_") ? "sm_90a-13" : "sm_80";
  }

  private String registers(Variant v) {
    IntSummaryStatistics registers =
        resources.stream()
            .filter(row -> v.elements().stream().anyMatch(e -> v.owns(row[0], e)))
            .mapToInt(row -> Integer.parseInt(row[2]))
            .summaryStatistics();
    int least = registers.getMin();
    int most = registers.getMax();
    return least > most ? "-" : least == most ? "" + least : least + " to " + most;
  }

  /** Of the columns that are not 0 for all. */
  private String countsOf(String family) {
    List<Counts> rows = counts.stream().filter(c -> c.family().equals(family)).toList();
    assertEquals(
        KernelCatalogue.of(family).stream().map(Variant::name).toList(),
        rows.stream().map(Counts::variant).toList(),
        "counts.tsv: variants of " + family);
    List<Column> columns =
        COLUMNS.stream()
            .filter(c -> rows.stream().anyMatch(row -> c.value().applyAsLong(row) != 0))
            .toList();
    StringBuilder table =
        new StringBuilder(
            "Counted in %s on %s:\n\n| %s | KB read (x least) | KB written (x least) |"
                .formatted(rows.getFirst().element(), CountingRun.SHAPES.of(family), family));
    columns.forEach(c -> table.append(" %s |".formatted(c.title())));
    table.append("\n|---|---:|---:|").append("---:|".repeat(columns.size())).append('\n');
    for (Counts row : rows) {
      table
          .append("| %s |".formatted(row.variant()))
          .append(bytes(row.read(), row.leastRead()))
          .append(bytes(row.written(), row.leastWritten()));
      columns.forEach(
          c -> table.append(" %s |".formatted(thousands(c.value().applyAsLong(row) / 1000.0))));
      table.append('\n');
    }
    return table.toString();
  }

  private record Column(String title, ToLongFunction<Counts> value) {}

  private static final List<Column> COLUMNS =
      List.of(
          new Column("multiply-adds, K", Counts::multiplyAdds),
          new Column("on tensor cores, K", Counts::tensorMultiplyAdds),
          new Column("exp, K", Counts::exponentials),
          new Column("wavefronts, K", Counts::wavefronts),
          new Column("of conflicts, K", Counts::conflicts));

  private static String bytes(long bytes, long least) {
    return " %s (%.1f) |".formatted(thousands(bytes / 1024.0), (double) bytes / least);
  }

  private static String thousands(double value) {
    return String.format(Locale.ROOT, value < 100 ? "%.1f" : "%,.0f", value);
  }
}
