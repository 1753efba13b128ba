package dev.loupe.cuda.measure;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.loupe.cuda.Gpu;
import dev.loupe.cuda.driver.Element;
import dev.loupe.cuda.driver.Variant;
import dev.loupe.cuda.emulator.Emulator;
import dev.loupe.cuda.emulator.OnDevice;
import dev.loupe.cuda.kernels.KernelCatalogue;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.TimeUnit;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** The benchmark has a line for every variant; the times are looked at by nobody here. */
class KernelBenchmarkTest {
  private static final Pattern LINE =
      Pattern.compile(
          "\\{\"kernel\": \"(\\w+)\", \"variant\": \"(\\w+)\", \"element\": \"(\\w+)\","
              + " \"shape\": \"[^\"]+\", \"bytes\": [1-9]\\d*,"
              + " \"us\": \\{\"median\": \\S+, \"p10\": \\S+, \"p90\": \\S+\\}\\}");

  @Test
  @OnDevice(emulated = true)
  @Timeout(value = 2, unit = TimeUnit.MINUTES)
  void everyVariantHasALineInEachElement() {
    List<String> lines = new ArrayList<>();
    Set<String> expected = new TreeSet<>();
    try (Gpu gpu = Emulator.open()) {
      KernelBenchmark.run(gpu, KernelBenchmark.tiny(), 1, 1 << 20, 64, lines::add);
      assertEquals(List.of(), gpu.liveBuffers());
      for (Variant v : KernelCatalogue.all()) {
        for (Element e : v.elements()) {
          if (v.supports(e, gpu.computeCapability())) {
            expected.add("%s %s %s".formatted(v.family(), v.name(), e.suffix()));
          }
        }
      }
    }
    Set<String> timed = new TreeSet<>();
    for (String line : lines) {
      Matcher m = LINE.matcher(line);
      if (m.matches()) {
        timed.add("%s %s %s".formatted(m.group(1), m.group(2), m.group(3)));
      } else {
        assertTrue(line.startsWith("{\"ceiling\": "), line);
      }
    }
    assertEquals(expected, timed);
    assertEquals(2, lines.stream().filter(line -> line.startsWith("{\"ceiling\": ")).count());
  }

  @Test
  void ranksAndRates() {
    double[] times = {900, 900, 3, 1, 2, 11, 5, 4, 6, 8, 7, 10, 9};
    int[] next = {0};
    Spread spread = Spread.of(2, 11, () -> times[next[0]++]);
    assertEquals(new Spread(6, 2, 10), spread);
    assertEquals(new Spread(10, 6, 30), spread.rate(60));
    assertEquals("{\"median\": 6.000, \"p10\": 2.000, \"p90\": 10.00}", spread.json());
  }
}
