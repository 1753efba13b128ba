package dev.loupe.bench.kernel.report;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.loupe.bench.kernel.Measurement;
import dev.loupe.bench.kernel.Measurement.Status;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import org.junit.jupiter.api.Test;

class ReportTablesTest {
  private static KernelReport simple() {
    return KernelReports.of(
        List.of(
            KernelReports.simple("a", 40, 0),
            KernelReports.simple("b", 10, 1),
            KernelReports.without("w", Status.WRONG, "17 of 1000 outputs"),
            KernelReports.without("l", Status.LEFT_OUT, "no room")));
  }

  /** RFC 4180: a quoted field may have commas, line ends and doubled quotes. */
  private static List<List<String>> read(String csv) {
    List<List<String>> rows = new ArrayList<>();
    List<String> row = new ArrayList<>();
    StringBuilder field = new StringBuilder();
    boolean quoted = false;
    for (int i = 0; i < csv.length(); i++) {
      char c = csv.charAt(i);
      if (quoted && c == '"' && i + 1 < csv.length() && csv.charAt(i + 1) == '"') {
        field.append('"');
        i++;
      } else if (c == '"') {
        quoted = !quoted;
      } else if (!quoted && (c == ',' || c == '\n')) {
        row.add(field.toString());
        field.setLength(0);
        if (c == '\n') {
          rows.add(row);
          row = new ArrayList<>();
        }
      } else {
        field.append(c);
      }
    }
    assertFalse(quoted);
    assertTrue(row.isEmpty() && field.isEmpty(), "ends with a line feed");
    return rows;
  }

  @Test
  void csvByHand() {
    assertEquals(
        """
        operation,R,C,variant,idea,dtype,status,why,error,samples,median_us,p10_us,p90_us,bytes,operations,speed_up,gb_per_s,gflop_per_s,roofline_gb_per_s,roofline_gflop_per_s,percent_of_roofline,registers,shared_bytes,block_threads,occupancy,backend,device,emulated,started
        gelu,2,500,"a","the idea of a",f32,ok,"",0.5,6,40.0,40.0,40.0,1000.0,4000.0,1.0,0.025,0.1,1.0,8.0,2.5,,,,,"cpu","cpu, 512-bit vectors, 2 threads",false,2026-11-28T12:00:00Z
        gelu,2,500,"b","the idea of b",f32,ok,"",0.5,6,12.5,10.5,14.5,1000.0,4000.0,3.2,0.08,0.32,1.0,8.0,8.0,,,,,"cpu","cpu, 512-bit vectors, 2 threads",false,2026-11-28T12:00:00Z
        """,
        simple().csv().lines().limit(3).reduce("", (x, y) -> x + y + "\n"));
    List<List<String>> rows = read(simple().csv());
    assertEquals(5, rows.size());
    assertEquals(
        List.of("wrong", "17 of 1000 outputs", "7.5", "0", "", "", ""), rows.get(3).subList(6, 13));
    assertEquals(List.of("left out", "no room", "", "0", "", "", ""), rows.get(4).subList(6, 13));
    assertEquals(List.of("", "", ""), rows.get(3).subList(15, 18), "no rates of what is wrong");
  }

  @Test
  void everyLineOfCsvHasAllColumns() {
    for (KernelReport report :
        List.of(
            simple(),
            KernelReports.hostile(),
            KernelReports.cpu(1, 1),
            KernelReports.cuda(false),
            KernelReports.cuda(true))) {
      List<List<String>> rows = read(report.csv());
      assertEquals(report.measurements().size() + 1, rows.size());
      for (List<String> row : rows) {
        assertEquals(rows.getFirst().size(), row.size());
      }
    }
    assertEquals(1, read(KernelReports.of(List.of()).csv()).size());
    Measurement hostile = KernelReports.hostile().measurements().getFirst();
    List<String> row = read(KernelReports.hostile().csv()).get(1);
    assertEquals(hostile.variant(), row.get(3));
    assertEquals(hostile.idea(), row.get(4));
  }

  @Test
  void noFormatDependsOnTheLocale() {
    Locale usual = Locale.getDefault();
    KernelReport report = KernelReports.cpu(1, 1).against(KernelReports.cpu(100, 0.9));
    List<String> before =
        List.of(report.csv(), report.markdown(), report.json(), report.text(80), report.html());
    try {
      for (String tag : List.of("de-DE", "ar-EG-u-nu-arab", "tr-TR", "hi-IN-u-nu-deva")) {
        Locale.setDefault(Locale.forLanguageTag(tag));
        assertEquals(
            before,
            List.of(report.csv(), report.markdown(), report.json(), report.text(80), report.html()),
            tag);
      }
    } finally {
      Locale.setDefault(usual);
    }
  }

  @Test
  void markdownByHand() {
    String text = simple().markdown();
    assertTrue(
        text.contains(
            """
            ### R=2 C=500 in f32

            | variant | median | p10 | p90 | speed-up | GFLOP/s | GB/s | of best |
            | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |
            | a | 40.0 us | 40.0 us | 40.0 us | 1.00x | 0.100 | 0.0250 | 2.5% |
            | b | 12.5 us | 10.5 us | 14.5 us | 3.20x | 0.320 | 0.0800 | 8.0% |
            | w | WRONG: 17 of 1000 outputs |  |  |  |  |  |  |
            | l | left out: no room |  |  |  |  |  |  |

            b wins: 3.2 times as fast as a; 8.0% of what this machine can do. 4.00 operations for each byte: memory is the limit, not arithmetic.
            """),
        text);
    assertTrue(text.contains("\n- **b**: the idea of b\n"), text);
    assertTrue(text.contains("\nSome 2-core CPU; 2 processors"), text);
    assertTrue(text.contains("\nA time is the median of the runs"), text);
  }

  @Test
  void markdownOfAComparison() {
    KernelReport older = KernelReports.of(List.of(KernelReports.simple("b", 20, 0)));
    String text = simple().against(older).markdown();
    assertTrue(
        text.contains(
            """
            ## Against the run of 2026-11-28 12:00:00 UTC

            3 new, 1 faster.

            | shape | variant | then (p10 to p90) | now (p10 to p90) | speed | verdict |
            | --- | --- | ---: | ---: | ---: | --- |
            | R=2 C=500 in f32 | a |  | 40.0 us (40.0 us to 40.0 us) |  | new |
            | R=2 C=500 in f32 | b | 20.0 us (20.0 us to 20.0 us) | 12.5 us (10.5 us to 14.5 us) | 1.60x | 60% faster |
            | R=2 C=500 in f32 | w |  |  |  | new |
            | R=2 C=500 in f32 | l |  |  |  | new |
            """),
        text);
  }

  @Test
  void nothingIsMarkdownOrHtmlThatShouldNotBe() {
    KernelReport hostile = KernelReports.hostile();
    String text = hostile.against(hostile).markdown();
    assertFalse(text.contains("<"), text);
    for (String line : text.lines().toList()) {
      String plain = line.replaceAll("\\\\[\\\\`*_\\[\\]|~#]", ""); // what is escaped
      assertFalse(plain.contains("`"), line);
      assertFalse(plain.replaceFirst("^- \\*\\*.*?\\*\\*:", "").contains("*"), line);
      if (plain.startsWith("|")) {
        long cells = plain.chars().filter(c -> c == '|').count() - 1;
        assertTrue(cells == 8 || cells == 6, line);
      } else {
        assertFalse(plain.contains("|"), line);
      }
    }
  }
}
