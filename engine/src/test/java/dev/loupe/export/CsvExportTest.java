package dev.loupe.export;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.loupe.generate.Generation;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

class CsvExportTest {
  @TempDir Path folder;

  private List<List<String>> export(Generation run) throws IOException {
    Path file = folder.resolve("run.csv");
    AttentionFormat.CSV.write(run, file);
    return parse(Files.readString(file));
  }

  /** RFC 4180, with line feeds. */
  private static List<List<String>> parse(String text) {
    List<List<String>> lines = new ArrayList<>();
    List<String> line = new ArrayList<>();
    StringBuilder field = new StringBuilder();
    boolean quoted = false;
    for (int i = 0; i < text.length(); i++) {
      char c = text.charAt(i);
      if (c == '"' && quoted && text.startsWith("\"\"", i)) {
        field.append('"');
        i++;
      } else if (c == '"') {
        quoted = !quoted;
      } else if (!quoted && (c == ',' || c == '\n')) {
        line.add(field.toString());
        field.setLength(0);
        if (c == '\n') {
          lines.add(line);
          line = new ArrayList<>();
        }
      } else {
        field.append(c);
      }
    }
    assertTrue(!quoted && field.isEmpty() && line.isEmpty(), "ends with a whole line");
    return lines;
  }

  @Test
  void oneLinePerCausalPairWithTheVeryFloats() throws IOException {
    Generation run =
        Runs.random(
            new int[] {1, 3}, new int[] {0, 5}, 2, true, "=SUM(A1)", "a\"b,c", "", "x\ny", "-1");
    List<List<String>> lines = export(run);
    assertEquals(
        List.of("layer", "head", "query", "key", "query_token", "key_token", "weight", "score"),
        lines.getFirst());
    assertEquals(1 + 2 * 2 * 15, lines.size());
    int line = 1;
    for (int layer : new int[] {1, 3}) {
      for (int head : new int[] {0, 5}) {
        for (int query = 0; query < 5; query++) {
          for (int key = 0; key <= query; key++) {
            assertEquals(
                List.of(
                    "" + layer,
                    "" + head,
                    "" + query,
                    "" + key,
                    run.tokens().get(query).label(),
                    run.tokens().get(key).label(),
                    "" + run.attention().row(layer, head, query)[key],
                    "" + run.scores().orElseThrow().row(layer, head, query)[key]),
                lines.get(line++));
          }
        }
      }
    }
  }

  @Test
  void withoutScoresThereIsNoScoreColumn() throws IOException {
    Generation run = Runs.random(new int[] {2}, new int[] {4}, 1, false, "+1");
    assertEquals(
        List.of(
            List.of("layer", "head", "query", "key", "query_token", "key_token", "weight"),
            List.of("2", "4", "0", "0", "+1", "+1", "1.0")),
        export(run));
  }
}
