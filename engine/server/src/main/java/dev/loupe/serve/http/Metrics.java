package dev.loupe.serve.http;

import static java.nio.charset.StandardCharsets.US_ASCII;

import com.sun.management.UnixOperatingSystemMXBean;
import java.io.BufferedReader;
import java.io.FileReader;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.lang.management.ManagementFactory;
import java.util.Locale;
import java.util.Optional;
import java.util.concurrent.ConcurrentSkipListMap;
import java.util.concurrent.atomic.LongAdder;

/**
 * What was done so far, in Prometheus' text format 0.0.4. Labels have few values: routes that there
 * are and status codes, nothing that a client writes.
 */
public final class Metrics {
  private record Answered(String route, int status) implements Comparable<Answered> {
    @Override
    public int compareTo(Answered other) {
      int byRoute = route.compareTo(other.route);
      return byRoute != 0 ? byRoute : Integer.compare(status, other.status);
    }
  }

  private final ConcurrentSkipListMap<Answered, LongAdder> answered = new ConcurrentSkipListMap<>();
  private final LongAdder cancelled = new LongAdder();
  private final LongAdder read = new LongAdder();
  private final LongAdder written = new LongAdder();
  private final LongAdder runs = new LongAdder();
  private final LongAdder nanos = new LongAdder();
  private final Places places;

  public Metrics(Places places) {
    this.places = places;
  }

  public void answered(String route, int status) {
    answered.computeIfAbsent(new Answered(route, status), _ -> new LongAdder()).increment();
  }

  /** A client went away before its answer was complete. */
  public void cancelled() {
    cancelled.increment();
  }

  /** A request held its place for so long. */
  public void ran(long duration) {
    runs.increment();
    nanos.add(duration);
  }

  public void tokens(int prompt, int generated) {
    read.add(prompt);
    written.add(generated);
  }

  public String text() {
    StringBuilder text = new StringBuilder();
    head(text, "loupe_requests_total", "counter", "Requests answered, by path and status.");
    answered.forEach(
        (key, count) ->
            text.append(
                "loupe_requests_total{path=\"%s\",status=\"%d\"} %d\n"
                    .formatted(key.route, key.status, count.sum())));
    value(text, "loupe_requests_cancelled_total", "counter", "Clients that went away.", cancelled);
    value(text, "loupe_prompt_tokens_total", "counter", "Tokens read.", read);
    value(text, "loupe_generated_tokens_total", "counter", "Tokens written.", written);
    value(text, "loupe_requests_running", "gauge", "Requests that run.", places.running());
    value(text, "loupe_requests_waiting", "gauge", "Requests that wait.", places.waiting());
    residentBytes()
        .ifPresent(
            bytes -> value(text, "loupe_resident_bytes", "gauge", "Memory of the process.", bytes));
    value(
        text,
        "loupe_threads",
        "gauge",
        "Threads of the process.",
        ManagementFactory.getThreadMXBean().getThreadCount());
    if (ManagementFactory.getOperatingSystemMXBean() instanceof UnixOperatingSystemMXBean unix) {
      long files = unix.getOpenFileDescriptorCount();
      value(text, "loupe_open_files", "gauge", "Files and connections.", files);
    }
    head(text, "loupe_run_seconds", "summary", "Time that requests ran, without waiting.");
    text.append(String.format(Locale.ROOT, "loupe_run_seconds_sum %.6f\n", nanos.sum() / 1e9));
    text.append("loupe_run_seconds_count ").append(runs.sum()).append('\n');
    return text.toString();
  }

  /** What of the process lies in memory, where Linux says so. */
  private static Optional<Long> residentBytes() {
    try (BufferedReader status =
        new BufferedReader(new FileReader("/proc/self/status", US_ASCII))) {
      return status
          .lines()
          .filter(line -> line.startsWith("VmRSS:"))
          .map(line -> Long.parseLong(line.replaceAll("\\D", "")) * 1024)
          .findFirst();
    } catch (IOException | UncheckedIOException e) {
      return Optional.empty();
    }
  }

  private static void head(StringBuilder text, String name, String type, String help) {
    text.append("# HELP ").append(name).append(' ').append(help).append('\n');
    text.append("# TYPE ").append(name).append(' ').append(type).append('\n');
  }

  private static void value(
      StringBuilder text, String name, String type, String help, Number value) {
    head(text, name, type, help);
    text.append(name).append(' ').append(value.longValue()).append('\n');
  }
}
