package dev.loupe.export;

import dev.loupe.attention.AttentionMaps;
import dev.loupe.generate.Token;
import java.io.IOException;
import java.io.Writer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import org.jspecify.annotations.Nullable;

/**
 * Maps as one line per causal pair, {@code layer,head,query,key,query_token,key_token,weight} and
 * {@code score} where scores were kept. Tokens are labels, always in quotes (RFC 4180), and stand
 * as they are even where a spreadsheet would take them for a formula. Lines end with a line feed,
 * so that the last number is a number to every Unix tool.
 */
final class CsvExport {
  private CsvExport() {}

  static void write(MappedRun run, ColourScale colour, Path file) throws IOException {
    AttentionMaps maps = run.maps();
    AttentionMaps scores = run.scores();
    String[] labels =
        run.tokens().stream().map(Token::label).map(CsvExport::quoted).toArray(String[]::new);
    try (Writer out = Files.newBufferedWriter(file, StandardCharsets.UTF_8)) {
      out.write("layer,head,query,key,query_token,key_token,weight");
      out.write(scores == null ? "\n" : ",score\n");
      StringBuilder lines = new StringBuilder();
      for (int layer : maps.layers()) {
        for (int head : maps.heads()) {
          for (int query = 0; query < maps.tokens(); query++) {
            lines.setLength(0);
            rowLines(
                layer + "," + head + "," + query + ",",
                labels,
                maps.row(layer, head, query),
                scores == null ? null : scores.row(layer, head, query),
                lines);
            out.append(lines);
          }
        }
      }
    }
  }

  private static void rowLines(
      String start,
      String[] labels,
      float[] weights,
      float @Nullable [] scores,
      StringBuilder lines) {
    String queryLabel = labels[weights.length - 1];
    for (int key = 0; key < weights.length; key++) {
      lines.append(start).append(key).append(',').append(queryLabel).append(',');
      lines.append(labels[key]).append(',').append(weights[key]);
      if (scores != null) {
        lines.append(',').append(scores[key]);
      }
      lines.append('\n');
    }
  }

  static String quoted(String label) {
    return '"' + label.replace("\"", "\"\"") + '"';
  }
}
