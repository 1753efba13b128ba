package dev.loupe.export.page;

/** Tables of the pages that reports are, appended to their text. Cells are HTML. */
public final class HtmlTable {
  private HtmlTable() {}

  /**
   * Begins one.
   *
   * @param css its class
   * @param heads of its columns
   */
  public static void begin(StringBuilder out, String css, String... heads) {
    out.append("<div class=\"table\"><table class=\"%s\">\n<thead><tr>".formatted(css));
    for (String head : heads) {
      out.append("<th scope=\"col\">").append(head).append("</th>");
    }
    out.append("</tr></thead>\n<tbody>\n");
  }

  /** A row. */
  public static void row(StringBuilder out, String... cells) {
    out.append("<tr>");
    for (String cell : cells) {
      out.append("<td>").append(cell).append("</td>");
    }
    out.append("</tr>\n");
  }

  /** Ends it. */
  public static void end(StringBuilder out) {
    out.append("</tbody></table></div>\n");
  }
}
