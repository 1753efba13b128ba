package dev.loupe.export.figure;

import dev.loupe.export.figure.Svg.Anchor;
import java.util.List;
import java.util.stream.IntStream;

/**
 * A small circuit over tokens and layers: tokens at the bottom, layers above each other, what is
 * predicted at the top.
 *
 * @param title for those who hear it read
 * @param columns tokens, from left to right
 * @param rows layers, from the bottom to the top
 * @param top what is predicted; it stands above the last column
 * @param nodes parts of the model
 * @param links what reads what, behind the nodes
 * @param reads the keys that nodes attend to
 */
public record CircuitFigure(
    String title,
    List<String> columns,
    List<String> rows,
    String top,
    List<Node> nodes,
    List<Link> links,
    List<Read> reads) {
  /** In place of a node's index: what is predicted. */
  public static final int TOP = -1;

  private static final int WIDTH = 62; // of a node, in pixels like all that follows
  private static final int HEIGHT = 34;
  private static final int GAP = 10; // between nodes of one row and column
  private static final int LEAST_COLUMN = 92;
  private static final int LEFT = 64;
  private static final int STEP = 84; // from row to row
  private static final int LABEL = 12; // size of the font
  private static final int APART = 7; // links between the same two nodes
  private static final int THICKEST = 6; // classes t1 to t6 of the style

  /**
   * A part.
   *
   * @param name how a program finds it in the drawing
   * @param label its first line
   * @param value its second line
   * @param tip what it says under a pointer
   */
  public record Node(int row, int column, String name, String label, String value, String tip) {}

  /**
   * A link.
   *
   * @param from index of a node
   * @param to index of a node, or {@link #TOP}
   * @param colour one of {@code s0} to {@code s7}
   * @param label a letter or two, at its middle
   * @param weight its thickness, from 0 to 1
   * @param name how a program finds it in the drawing
   * @param tip what it says under a pointer
   */
  public record Link(
      int from, int to, String colour, String label, double weight, String name, String tip) {}

  /**
   * That a node attends to a token.
   *
   * @param node its index
   */
  public record Read(int node, int column, String tip) {}

  public CircuitFigure {
    columns = List.copyOf(columns);
    rows = List.copyOf(rows);
    nodes = List.copyOf(nodes);
    links = List.copyOf(links);
    reads = List.copyOf(reads);
  }

  /** For a page that has {@link Svg#style}. */
  public String inline() {
    return draw().inline(title, width(), height());
  }

  /** For a file of its own. */
  public String file() {
    return draw().file(title, width(), height());
  }

  private Svg draw() {
    Svg svg = new Svg();
    for (int row = 0; row < rows.size(); row++) {
      svg.line("grid", LEFT, y(row), width(), y(row));
      svg.text("muted", Anchor.START, 0, y(row) + 4, rows.get(row));
    }
    double tokens = y(-1);
    for (int column = 0; column < columns.size(); column++) {
      String shown = Svg.cut(columns.get(column), columnWidth(column) - 8.0, LABEL);
      svg.begin(columns.get(column));
      svg.text("value", Anchor.MIDDLE, x(column), tokens + 4, shown);
      svg.end();
    }
    for (Read read : reads) {
      svg.begin(read.tip);
      svg.path("reads", curve(x(read.column), tokens - 12, xOf(read.node), bottom(read.node)));
      svg.end();
    }
    for (Link link : links) {
      link(svg, link);
    }
    for (int i = 0; i < nodes.size(); i++) {
      Node node = nodes.get(i);
      svg.begin(node.tip, node.name);
      svg.bar("node", xOf(i) - WIDTH / 2.0, y(node.row) - HEIGHT / 2.0, WIDTH, HEIGHT);
      svg.text("name", Anchor.MIDDLE, xOf(i), y(node.row) - 1, node.label);
      svg.text("muted", Anchor.MIDDLE, xOf(i), y(node.row) + 13, node.value);
      svg.end();
    }
    svg.begin(top);
    svg.text(
        "name", Anchor.END, Math.min(width() - 4.0, left(columns.size())), y(rows.size()) + 4, top);
    svg.end();
    return svg;
  }

  private void link(Svg svg, Link link) {
    int beside = // k, q and v of the same two nodes
        link.label.isEmpty() ? 0 : APART * Integer.signum(link.label.compareTo("q"));
    double fromX = xOf(link.from) + beside;
    double fromY = y(nodes.get(link.from).row) - HEIGHT / 2.0;
    double toX = link.to == TOP ? x(columns.size() - 1) : xOf(link.to) + beside;
    double toY = link.to == TOP ? y(rows.size()) + 12 : bottom(link.to);
    String d = curve(fromX, fromY, toX, toY);
    svg.begin(link.tip, link.name);
    svg.path("hit", d);
    int thickness = Math.clamp(Math.round(THICKEST * link.weight), 1, THICKEST);
    svg.path("curve %s t%d".formatted(link.colour, thickness), d);
    if (!link.label.isEmpty()) {
      svg.text(
          "curve-name " + link.colour,
          Anchor.MIDDLE,
          (fromX + toX) / 2,
          (fromY + toY) / 2 + 4,
          link.label);
    }
    svg.end();
  }

  /** From a place upwards to another. */
  private static String curve(double x1, double y1, double x2, double y2) {
    double bend = (y1 - y2) / 2;
    return "M%s %sC%s %s %s %s %s %s"
        .formatted(
            Svg.at(x1),
            Svg.at(y1),
            Svg.at(x1),
            Svg.at(y1 - bend),
            Svg.at(x2),
            Svg.at(y2 + bend),
            Svg.at(x2),
            Svg.at(y2));
  }

  // ---- places

  /** Nodes of one row and column stand side by side, in their order. */
  private List<Integer> beside(int row, int column) {
    return IntStream.range(0, nodes.size())
        .filter(i -> nodes.get(i).row == row && nodes.get(i).column == column)
        .boxed()
        .toList();
  }

  private int columnWidth(int column) {
    int most = 1;
    for (Node node : nodes) {
      if (node.column == column) {
        most = Math.max(most, beside(node.row, column).size());
      }
    }
    return Math.max(LEAST_COLUMN, most * (WIDTH + GAP) + GAP);
  }

  /** Where a column begins; at one past the last, where they end. */
  private int left(int column) {
    return LEFT + IntStream.range(0, column).map(this::columnWidth).sum();
  }

  /** Of a column's middle. */
  private double x(int column) {
    return left(column) + columnWidth(column) / 2.0;
  }

  private double xOf(int node) {
    Node of = nodes.get(node);
    List<Integer> all = beside(of.row, of.column);
    return x(of.column) + (all.indexOf(node) - (all.size() - 1) / 2.0) * (WIDTH + GAP);
  }

  /** Of a row's middle; -1 for the tokens, one past the last for what is predicted. */
  private double y(int row) {
    return height() - 20 - (row + 1.0) * STEP + (row < 0 ? 0 : 14);
  }

  private double bottom(int node) {
    return y(nodes.get(node).row) + HEIGHT / 2.0;
  }

  private int width() {
    return left(columns.size()) + 8;
  }

  private int height() {
    return (rows.size() + 1) * STEP + 24;
  }
}
