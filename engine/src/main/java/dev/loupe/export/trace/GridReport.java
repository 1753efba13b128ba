package dev.loupe.export.trace;

import com.google.gson.stream.JsonWriter;
import dev.loupe.export.TerminalText;
import dev.loupe.generate.Token;
import dev.loupe.interpret.trace.PatchGrid;
import dev.loupe.interpret.trace.PatchGrid.Row;
import dev.loupe.interpret.trace.Quantity;
import java.io.IOException;
import java.io.StringWriter;
import java.io.UncheckedIOException;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.Locale;

/** A {@link PatchGrid} for a terminal, as JSON and as CSV. */
public final class GridReport {
  private static final int STRONGEST = 20; // cells that are shown

  private GridReport() {}

  private record Cell(Row row, int position, double effect) {}

  /** The cells of largest effect, no line longer than {@code columns}. */
  public static String text(PatchGrid grid, int columns) {
    List<Cell> cells = new ArrayList<>();
    for (Row row : grid.rows()) {
      for (int t = 0; t < row.effects().size(); t++) {
        cells.add(new Cell(row, t, row.effects().get(t)));
      }
    }
    StringBuilder out = new StringBuilder();
    Token read = grid.tokens().get(grid.position());
    line(
        out,
        columns,
        String.format(
            Locale.ROOT,
            "After token %d, %s, the %s is %.2f, in the second text %.2f.",
            grid.position(),
            read.label(),
            grid.quantity().words(),
            grid.value(),
            grid.otherValue()));
    line(out, columns, "It changes most where one of these activations is the second text's:");
    cells.stream()
        .sorted(Comparator.comparingDouble(cell -> -Math.abs(cell.effect)))
        .limit(STRONGEST)
        .forEach(
            cell ->
                line(
                    out,
                    columns,
                    String.format(
                        Locale.ROOT,
                        "%-14s token %4d  %s %+8.3f",
                        cell.row.label(),
                        cell.position,
                        TerminalText.fit(grid.tokens().get(cell.position).label(), 14),
                        cell.effect)));
    return out.toString();
  }

  private static void line(StringBuilder out, int columns, String line) {
    out.append(TerminalText.fit(line, columns).stripTrailing()).append('\n');
  }

  /** One object on one line, schema {@code loupe-patch/1}. */
  public static String json(PatchGrid grid) {
    StringWriter out = new StringWriter();
    try (JsonWriter json = new JsonWriter(out)) {
      json.setHtmlSafe(false);
      json.beginObject();
      json.name("schema").value("loupe-patch/1");
      json.name("model").value(grid.model().source());
      json.name("backend").value(grid.model().backend());
      json.name("position").value(grid.position());
      json.name("tokens").beginArray();
      for (Token token : grid.tokens()) {
        TraceReport.token(json, token.id(), token.label());
      }
      json.endArray();
      Quantity quantity = grid.quantity();
      json.name("quantity").beginObject();
      TraceReport.quantity(quantity, json);
      json.name("value").value(grid.value());
      json.name("value_of_second_text").value(grid.otherValue());
      json.endObject();
      json.name("rows").beginArray();
      for (Row row : grid.rows()) {
        json.beginObject();
        json.name("site").value(row.site().label());
        json.name("layer").value(row.layer());
        json.name("head");
        if (row.head() < 0) {
          json.nullValue();
        } else {
          json.value(row.head());
        }
        json.name("effects").beginArray();
        for (double effect : row.effects()) {
          json.value(effect);
        }
        json.endArray();
        json.endObject();
      }
      json.endArray();
      json.endObject();
    } catch (IOException e) {
      throw new UncheckedIOException(e); // a StringWriter has none
    }
    return out.toString();
  }

  /** {@code site,layer,head,position,effect}: a line a cell. */
  public static String csv(PatchGrid grid) {
    StringBuilder out = new StringBuilder("site,layer,head,position,effect\n");
    for (Row row : grid.rows()) {
      for (int t = 0; t < row.effects().size(); t++) {
        out.append(row.site().label()).append(',').append(row.layer()).append(',');
        out.append(row.head() < 0 ? "" : row.head()).append(',').append(t).append(',');
        out.append(row.effects().get(t)).append('\n');
      }
    }
    return out.toString();
  }
}
