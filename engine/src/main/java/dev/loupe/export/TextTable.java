package dev.loupe.export;

import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.function.Function;

/**
 * A table for a terminal. Where it is too narrow, the columns that matter least are left out.
 *
 * @param <R> what a row is about
 */
public final class TextTable<R> {
  private static final int GAP = 2;

  /**
   * A column.
   *
   * @param rank the higher, the sooner it is left out; 0 for never
   */
  private record Column<R>(String head, int rank, Function<R, String> cell) {
    int width(List<R> rows) {
      int width = TerminalText.width(head);
      for (R row : rows) {
        width = Math.max(width, TerminalText.width(cell.apply(row)));
      }
      return width;
    }
  }

  private final List<Column<R>> columns = new ArrayList<>();

  /** A table without columns yet. */
  public TextTable() {}

  /**
   * Adds a column.
   *
   * @param rank the higher, the sooner it is left out; 0 for never
   */
  public TextTable<R> column(String head, int rank, Function<R, String> cell) {
    columns.add(new Column<>(head, rank, cell));
    return this;
  }

  /**
   * Lines, none longer than {@code most}; the first column is aligned left, the others right.
   *
   * @param rows what there is to say of each
   * @param notes instead of all columns but the first, where it is not empty
   */
  public List<String> lines(List<R> rows, Function<R, String> notes, int most) {
    List<R> full = rows.stream().filter(r -> notes.apply(r).isEmpty()).toList();
    List<Column<R>> shown = new ArrayList<>(columns);
    Column<R> first = shown.getFirst();
    int name = Math.min(first.width(rows), Math.max(8, most / 3));
    while (name + others(shown, full) > most) {
      Column<R> least = shown.stream().max(Comparator.comparingInt(c -> c.rank)).orElseThrow();
      if (least.rank == 0) {
        break;
      }
      shown.remove(least);
    }
    List<String> lines = new ArrayList<>();
    if (!full.isEmpty()) {
      StringBuilder line = new StringBuilder(TerminalText.fit(first.head, name));
      for (Column<R> column : shown.subList(1, shown.size())) {
        line.append(right(column.head, column.width(full) + GAP));
      }
      lines.add(line.toString());
    }
    for (R row : rows) {
      String start = TerminalText.fit(first.cell.apply(row), name);
      if (!notes.apply(row).isEmpty()) {
        lines.addAll(wrap(start + " ".repeat(GAP), notes.apply(row), most));
        continue;
      }
      StringBuilder line = new StringBuilder(start);
      for (Column<R> column : shown.subList(1, shown.size())) {
        line.append(right(column.cell.apply(row), column.width(full) + GAP));
      }
      lines.add(line.toString());
    }
    return lines.stream().map(l -> TerminalText.fit(l, most).stripTrailing()).toList();
  }

  private static <R> int others(List<Column<R>> shown, List<R> rows) {
    return shown.stream().skip(1).mapToInt(c -> c.width(rows) + GAP).sum();
  }

  private static String right(String text, int width) {
    return " ".repeat(Math.max(0, width - TerminalText.width(text))) + TerminalText.safe(text);
  }

  /** {@code text} after {@code start}, in lines that begin below its own beginning. */
  public static List<String> wrap(String start, String text, int most) {
    int indent = Math.min(TerminalText.width(start), most / 2);
    List<String> lines = new ArrayList<>();
    StringBuilder line = new StringBuilder(TerminalText.fit(start, indent));
    boolean empty = true;
    for (String each : text.strip().split("\\s+", -1)) {
      String word = TerminalText.safe(each);
      if (!empty && TerminalText.width(line.toString()) + 1 + TerminalText.width(word) > most) {
        lines.add(line.toString());
        line = new StringBuilder(" ".repeat(indent));
        empty = true;
      }
      String room = TerminalText.fit(word, most - indent).stripTrailing();
      line.append(empty ? "" : " ").append(room);
      empty = false;
    }
    lines.add(line.toString().stripTrailing());
    return lines;
  }
}
