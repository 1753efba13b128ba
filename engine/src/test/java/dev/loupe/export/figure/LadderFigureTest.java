package dev.loupe.export.figure;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.loupe.export.figure.LadderFigure.Mark;
import dev.loupe.export.figure.LadderFigure.Row;
import java.io.ByteArrayInputStream;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.regex.MatchResult;
import java.util.regex.Pattern;
import javax.xml.parsers.DocumentBuilderFactory;
import org.junit.jupiter.api.Test;
import org.w3c.dom.Element;

class LadderFigureTest {
  private static LadderFigure figure(Row... rows) {
    return new LadderFigure("A \"title\" <of> it", "an axis", v -> v + " us", List.of(rows));
  }

  private static List<String> all(String pattern, String svg) {
    return Pattern.compile(pattern).matcher(svg).results().map(MatchResult::group).toList();
  }

  private static List<String> bars(String svg) {
    return all("(?<=<rect class=\"bar\" x=\"290.0\" y=\"\\d{1,9}.0\" width=\")[^\"]*", svg);
  }

  /** 2 to 400 with air is 1 to 500, which goes from 290 to 960 - 215 pixels. */
  @Test
  void barsAreLogarithmic() {
    String svg =
        figure(Row.of("a", 400, "400"), Row.of("b", 20, "20"), Row.of("c", 2, "2")).inline(960);
    // 455 times log 400, log 20, log 2, each over log 500
    assertEquals(List.of("438.7", "219.3", "50.7"), bars(svg));
  }

  @Test
  void whatHasNoValueHasNoBar() {
    double none = Double.NaN;
    String svg =
        figure(
                new Row("a", "an idea", 5, 4, 6, "5 us", Mark.BEST),
                new Row("w", "other idea", none, none, none, "WRONG: 7 outputs", Mark.WRONG))
            .inline(960);
    assertEquals(List.of("<rect class=\"bar best\""), all("<rect [^ ]* ?best\"|<rect [^ ]*", svg));
    assertEquals(1, all("class=\"name wrong\"[^>]*>w<", svg).size());
    assertEquals(1, all("class=\"warning\"[^>]*>WRONG: 7 outputs<", svg).size());
    // the whisker: 4 to 6 on 2 to 10, that is 290 + 455 log 2 / log 5 and so on
    assertEquals(1, all("class=\"whisker\" d=\"M486\\.0 11\\.0H600\\.6M", svg).size());
    assertEquals(List.of(), all("whisker", figure(Row.of("a", 1, "")).inline(960)));
  }

  @Test
  void aFileIsWholeAndHasItsTitle() throws Exception {
    for (int width : new int[] {372, 960}) {
      String svg = figure(Row.of("<b>", 1, "\"1\""), Row.of("c", 3, "&")).file(width);
      Element root =
          DocumentBuilderFactory.newInstance()
              .newDocumentBuilder()
              .parse(new ByteArrayInputStream(svg.getBytes(StandardCharsets.UTF_8)))
              .getDocumentElement();
      assertEquals("http://www.w3.org/2000/svg", root.getAttribute("xmlns"));
      assertEquals("A \"title\" <of> it", root.getAttribute("aria-label"));
      assertEquals(String.valueOf(width), root.getAttribute("width"));
      assertTrue(root.getTextContent().contains("A \"title\" <of> it"));
      assertTrue(root.getTextContent().contains("prefers-color-scheme"));
    }
  }
}
