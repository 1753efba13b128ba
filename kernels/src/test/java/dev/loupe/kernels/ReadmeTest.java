package dev.loupe.kernels;

import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.IntSummaryStatistics;
import java.util.List;
import java.util.stream.Collectors;
import org.junit.jupiter.api.Test;

/** The tables in README.md are those of the catalogue and of the compiler. */
class ReadmeTest {
  @Test
  void tablesAreUpToDate() throws IOException {
    String readme = Files.readString(Path.of("README.md"));
    for (String family : KernelCatalogue.all().stream().map(Variant::family).distinct().toList()) {
      String table = table(family, Files.readAllLines(Path.of("resources.tsv")));
      assertTrue(
          readme.contains(table),
          () -> "README.md lacks this table, or has an older one:\n\n" + table);
    }
  }

  private static String table(String family, List<String> resources) {
    StringBuilder table =
        new StringBuilder(
            """
            | %s | idea | limits | elements | from | registers (sm_80) | spills (sm_80) | GPU |
            |---|---|---|---|---|---|---|---|
            """
                .formatted(family));
    for (Variant v : KernelCatalogue.of(family)) {
      List<String[]> rows =
          resources.stream()
              .map(line -> line.split("\t", -1))
              .filter(row -> row.length == 7 && row[1].equals("sm_80"))
              .filter(row -> v.elements().stream().anyMatch(e -> v.owns(row[0], e)))
              .toList();
      IntSummaryStatistics registers =
          rows.stream().mapToInt(row -> Integer.parseInt(row[2])).summaryStatistics();
      int spills =
          rows.stream()
              .mapToInt(row -> Integer.parseInt(row[4]) + Integer.parseInt(row[5]))
              .max()
              .orElse(0);
      table.append(
          "| %s | %s | %s | %s | sm_%d | %s | %s | not yet measured |\n"
              .formatted(
                  v.name(),
                  v.idea(),
                  v.limits().isEmpty() ? "none" : v.limits(),
                  v.elements().stream()
                      .sorted()
                      .map(Element::suffix)
                      .collect(Collectors.joining(" ")),
                  v.minComputeCapability(),
                  rows.isEmpty()
                      ? "-"
                      : registers.getMin() == registers.getMax()
                          ? String.valueOf(registers.getMin())
                          : registers.getMin() + " to " + registers.getMax(),
                  spills == 0 ? "0" : "%d bytes".formatted(spills)));
    }
    return table.toString();
  }
}
