package dev.loupe.bench.kernel.report;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.loupe.bench.kernel.Measurement.Status;
import dev.loupe.export.TerminalText;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

class ReportTextTest {
  private static KernelReport simple() {
    return KernelReports.of(
        List.of(
            KernelReports.simple("a", 40, 0),
            KernelReports.simple("b", 10, 1),
            KernelReports.without("w", Status.WRONG, "17 of 1000 outputs"),
            KernelReports.without("l", Status.LEFT_OUT, "no room")));
  }

  @Test
  void eightyColumnsByHand() {
    assertEquals(
        """
        GELU (tanh form) of rows, 4 variants, on cpu, 512-bit vectors, 2 threads.
        Shapes: R rows, C numbers a row.

        a  the idea of a
        b  the idea of b
        w  an idea
        l  an idea

        R=2 C=500 in f32
        variant  median us    p10..p90  speed-up  GFLOP/s    GB/s  of best
        a             40.0  40.0..40.0     1.00x    0.100  0.0250     2.5%
        b             12.5  10.5..14.5     3.20x    0.320  0.0800     8.0%
        w        WRONG: 17 of 1000 outputs
        l        left out: no room
        b wins: 3.2 times as fast as a; 8.0% of what this machine can do.
        4.00 operations for each byte: memory is the limit, not arithmetic.

        """,
        simple().text(80).replaceFirst("(?s)A time is the median.*", ""));
  }

  @ParameterizedTest
  @ValueSource(ints = {40, 60, 80, 120})
  void noLineIsLongerAndWhatMattersStays(int columns) {
    for (KernelReport report :
        List.of(
            simple().against(simple()),
            KernelReports.hostile().against(KernelReports.hostile()),
            KernelReports.cpu(1, 1).against(KernelReports.cpu(100, 0.9)),
            KernelReports.cuda(false).against(KernelReports.cuda(false)),
            KernelReports.cuda(true).against(KernelReports.cuda(true)),
            KernelReports.of(List.of()))) {
      for (String line : report.text(columns).lines().toList()) {
        assertTrue(TerminalText.width(line) <= columns, line);
        assertEquals(line.stripTrailing(), line);
        assertFalse(line.contains("\u001b"), line);
      }
    }
    String text = KernelReports.cpu(1, 1).against(KernelReports.cpu(100, 0.9)).text(columns);
    for (String must :
        List.of(
            "variant ", "median ms", "speed-up", "now ms", "verdict", "within noise", "faster")) {
      assertTrue(text.contains(must), must);
    }
    assertFalse(text.contains("…"), text); // nothing is cut
  }

  @Test
  void columnsGoInTurnAsRoomGets() {
    KernelReport report = KernelReports.cpu(1, 1);
    assertEquals(
        "variant     median ms      p10..p90  speed-up  GFLOP/s    GB/s  of best",
        head(report, 80));
    assertEquals("variant     median ms  speed-up  GFLOP/s  of best", head(report, 50));
    assertEquals("variant     median ms  speed-up  of best", head(report, 40));
    assertEquals("variant     median ms  speed-up", head(report, 39));
    assertEquals("variant   median ms", head(report, 25));
    KernelReport memory = simple(); // what matters there is bytes
    assertEquals("variant  median us  speed-up    GB/s  of best", head(memory, 50));
  }

  private static String head(KernelReport report, int columns) {
    return report
        .text(columns)
        .lines()
        .filter(l -> l.startsWith("variant") && l.contains("median"))
        .findFirst()
        .orElseThrow();
  }

  @Test
  void wrongAndLeftOutHaveAReasonAndNoTime() {
    for (int columns : List.of(40, 80)) {
      String text = KernelReports.cuda(false).text(columns).replaceAll("\\s+", " ");
      assertTrue(
          text.contains("v3 WRONG: 12 of 3072 outputs, the first: output 17 is 0.25, not 0.125 v4"),
          text);
      assertTrue(text.contains("v6 left out: only 16-bit inputs v5 is ahead"), text);
    }
  }

  @Test
  void interruptedIsSaid() {
    assertTrue(
        KernelReports.hostile()
            .text(120)
            .replaceAll("\\s+", " ")
            .contains("interrupted, so this is not all."));
    assertFalse(simple().text(120).contains("interrupted"));
    assertTrue(KernelReports.of(List.of()).text(80).startsWith("Nothing was measured, on cpu"));
  }

  @Test
  void ceilingsAreThoseOfAllShapes() {
    assertTrue(
        KernelReports.of(List.of(KernelReports.simple("a", 40, 0)))
            .text(200)
            .contains(
                "At best, measured beside the runs, in f32: memory gives 1.00 GB/s, arithmetic 8.00"
                    + " GFLOP/s."));
  }
}
