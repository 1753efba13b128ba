package dev.loupe.export.figure;

import static dev.loupe.export.figure.CurveFigure.apart;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.loupe.export.figure.CurveFigure.Curve;
import dev.loupe.export.figure.CurveFigure.Limit;
import dev.loupe.export.figure.CurveFigure.Mark;
import dev.loupe.export.figure.CurveFigure.Point;
import java.util.List;
import java.util.Random;
import java.util.regex.Pattern;
import java.util.stream.IntStream;
import org.junit.jupiter.api.Test;

class CurveFigureTest {
  @Test
  void namesThatWouldTouchMakeRoom() {
    assertEquals(List.of(), apart(List.of(), 10, 0, 100));
    assertEquals(List.of(5.0, 50.0), apart(List.of(5.0, 50.0), 10, 0, 100));
    assertEquals(List.of(45.0, 55.0), apart(List.of(50.0, 50.0), 10, 0, 100));
    assertEquals(List.of(40.0, 50.0, 60.0), apart(List.of(49.0, 50.0, 51.0), 10, 0, 100));
    assertEquals(List.of(0.0, 10.0), apart(List.of(1.0, 2.0), 10, 0, 100), "not above");
    assertEquals(List.of(90.0, 100.0), apart(List.of(99.0, 120.0), 10, 0, 100), "not below");
    // 30 and 32 want 26 and 36, which touches 45: all three around their mean, 35.67
    List<Double> three = apart(List.of(30.0, 32.0, 45.0), 10, 0, 100);
    assertEquals(25.67, three.getFirst(), 0.01);
    assertEquals(45.67, three.getLast(), 0.01);
  }

  @Test
  void anyNamesAreApartAndInside() {
    Random random = new Random(7);
    for (int i = 0; i < 1000; i++) {
      int n = 1 + random.nextInt(10);
      List<Double> wanted = random.doubles(n, -10, 110).sorted().boxed().toList();
      List<Double> places = apart(wanted, 11, 0, 100);
      for (int p = 0; p < n; p++) {
        assertTrue(places.get(p) >= -1e-9 && places.get(p) <= 100 + 1e-9, wanted::toString);
        assertTrue(p == 0 || places.get(p) - places.get(p - 1) >= 11 - 1e-9, wanted::toString);
      }
    }
  }

  /** On 600 pixels, from 100 / 1.1 to 1000 across and 1 to 1000 up. */
  @Test
  void pointsAreWhereTheyBelong() {
    List<Mark> marks = List.of(new Mark(100, "100"), new Mark(1000, "1000"));
    Curve curve = new Curve("a", true, List.of(new Point(100, 2, "tip"), new Point(1000, 500, "")));
    Limit limit = new Limit("top", List.of(new Point(100, 600, ""), new Point(1000, 600, "")));
    CurveFigure figure =
        new CurveFigure(
            "title", "x", "y", marks, List.of(), v -> "t" + v, List.of(curve), List.of(limit));
    String svg = figure.inline(600);
    LogAxis across = new LogAxis(100 / 1.1, 1000, 56, 600 - (Svg.width("a", 12) + 34));
    LogAxis up = new LogAxis(1, 1000, 44 + 360, 44);
    String from = Svg.at(across.at(100)) + " " + Svg.at(up.at(2));
    String to = Svg.at(across.at(1000)) + " " + Svg.at(up.at(500));
    assertTrue(svg.contains("<path class=\"curve s0\" d=\"M" + from + "L" + to + "\"/>"), svg);
    assertTrue(svg.contains("<g><title>tip</title>\n<path class=\"mark s0\" d=\"M" + from), svg);
    assertTrue(svg.contains(">top</text>"), svg);
    for (String tick : List.of("t1.0", "t10.0", "t100.0", "t1000.0")) {
      assertTrue(svg.contains(">" + tick + "</text>"), tick);
    }
  }

  @Test
  void manyCurvesStayDistinct() {
    List<Curve> curves =
        IntStream.range(0, 16)
            .mapToObj(i -> List.of(new Point(1, 1 + i, ""), new Point(2, 2, "")))
            .map(points -> new Curve("v", true, points))
            .toList();
    String svg =
        new CurveFigure("t", "x", "y", List.of(), List.of(), String::valueOf, curves, List.of())
            .inline(372);
    long looks =
        Pattern.compile("class=\"(curve s\\d( dashed)?)\"")
            .matcher(svg)
            .results()
            .map(r -> r.group(1))
            .distinct()
            .count();
    assertEquals(16, looks);
  }
}
