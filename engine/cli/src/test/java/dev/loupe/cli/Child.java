package dev.loupe.cli;

import static java.nio.charset.StandardCharsets.UTF_8;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeFalse;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import com.google.gson.JsonArray;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import dev.loupe.cli.terminal.Terminal;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Stream;
import java.util.zip.ZipFile;

/**
 * Java in a process of its own.
 *
 * @param folder where its standard error goes
 */
public record Child(Path folder) {
  private static final Pattern PERCENT =
      Pattern.compile("(?:reading|measuring|writing) .* (\\d+)%");

  public static List<String> java(Class<?> main, List<String> flags, Object... args) {
    List<String> command =
        new ArrayList<>(
            List.of(
                ProcessHandle.current().info().command().orElseThrow(),
                "--add-modules",
                "jdk.incubator.vector",
                "--enable-native-access=ALL-UNNAMED",
                "-XX:+UseSerialGC"));
    command.addAll(flags);
    command.addAll(List.of("-cp", System.getProperty("java.class.path"), main.getName()));
    Stream.of(args).map(Object::toString).forEach(command::add);
    return command;
  }

  public Process start(List<String> command) throws IOException {
    return start(command, Map.of());
  }

  /** Likewise, with more in the environment. */
  private Process start(List<String> command, Map<String, String> environment) throws IOException {
    ProcessBuilder builder =
        new ProcessBuilder(command)
            .redirectError(folder.resolve("stderr").toFile())
            .redirectInput(ProcessBuilder.Redirect.from(Path.of("/dev/null").toFile()));
    builder.environment().putAll(environment);
    return builder.start();
  }

  /** Runs to the end. */
  public Ran run(List<String> command, Map<String, String> environment) throws Exception {
    Process process = start(command, environment);
    String out = new String(process.getInputStream().readAllBytes(), UTF_8);
    assertTrue(process.waitFor(100, TimeUnit.SECONDS));
    return new Ran(process.exitValue(), out, said());
  }

  /** Standard error without what Java says at its start. */
  public String said() throws IOException {
    StringBuilder said = new StringBuilder();
    for (String line : Files.readAllLines(folder.resolve("stderr"))) {
      if (!line.startsWith("WARNING: Using incubator modules")) {
        said.append(line).append('\n');
      }
    }
    return said.toString();
  }

  /** Likewise, for messages of assertions. */
  String saidSafely() {
    try {
      return said();
    } catch (IOException e) {
      return e.toString();
    }
  }

  /** {@code loupe} as it is at a terminal: what it says shows how far it has come. */
  static final class AtTerminal {
    private AtTerminal() {}

    public static void main(String[] args) {
      OutputStream out = new FileOutputStream(FileDescriptor.out);
      System.exit(Main.run(Terminal.of(System.in, out, System.err, true), args));
    }
  }

  /** Waits until an {@link AtTerminal} has read, measured or written so many percent. */
  void awaitProgress(Process process, int percent) throws Exception {
    int shown = 0;
    while (shown < percent) {
      assertTrue(process.isAlive(), "it ended early");
      Thread.sleep(20);
      Matcher matcher = PERCENT.matcher(Files.readString(folder.resolve("stderr")));
      while (matcher.find()) {
        shown = Integer.parseInt(matcher.group(1));
      }
    }
  }

  /** What an {@link AtTerminal} said after its progress was taken away. */
  String saidAtLast() throws IOException {
    String said = Files.readString(folder.resolve("stderr"));
    return said.substring(said.lastIndexOf('\r') + 1);
  }

  public static void signal(Process process, String name) throws Exception {
    String pid = Long.toString(process.pid());
    assertEquals(0, new ProcessBuilder("kill", "-" + name, pid).inheritIO().start().waitFor());
  }

  /** A process inherits that a signal is ignored, as SIGINT is in the background of a script. */
  public static void assumeIsHeard(String signal) throws IOException {
    Path status = Path.of("/proc/self/status");
    assumeTrue(Files.exists(status), "no /proc here");
    int bit = exitCode(signal) - 128 - 1;
    for (String line : Files.readAllLines(status)) {
      if (line.startsWith("SigIgn:")) {
        long ignored = Long.parseUnsignedLong(line.substring(7).strip(), 16);
        assumeFalse((ignored >> bit & 1) != 0, "SIG" + signal + " is ignored here");
      }
    }
  }

  /** What a process ends with that this signal ended: 128 and its number. */
  public static int exitCode(String signal) {
    return switch (signal) {
      case "HUP" -> 129;
      case "INT" -> 130;
      case "TERM" -> 143;
      default -> throw new IllegalArgumentException(signal);
    };
  }

  /**
   * Ends a run of 4,000 tokens by a signal while it writes: text, a.json and a.npz in {@code made}
   * are there, agree, and end with the last token's row.
   */
  void interrupt(Process process, Path made, String signal) throws Exception {
    InputStream out = process.getInputStream();
    byte[] first = out.readNBytes(20);
    signal(process, signal);
    String text = new String(first, UTF_8) + new String(out.readAllBytes(), UTF_8);
    assertTrue(process.waitFor(100, TimeUnit.SECONDS));
    assertEquals(exitCode(signal), process.exitValue(), said());
    assertEquals(List.of("a.json", "a.npz"), Ran.names(made));
    JsonObject run =
        JsonParser.parseString(Files.readString(made.resolve("a.json"))).getAsJsonObject();
    assertEquals(text, run.get("text").getAsString());
    assertEquals(
        "interrupted", run.getAsJsonObject("generation").get("finish_reason").getAsString());
    int tokens = run.getAsJsonArray("tokens").size();
    assertTrue(tokens < 4000, "not to the end");
    JsonArray head =
        run.getAsJsonObject("attention").getAsJsonArray("weights").get(0).getAsJsonArray();
    JsonArray rows = head.get(0).getAsJsonArray();
    double sum = 0;
    for (var weight : rows.get(rows.size() - 1).getAsJsonArray()) {
      sum += weight.getAsDouble();
    }
    assertEquals(1, sum, 1e-5, "the last token's row is there");
    try (ZipFile zip = new ZipFile(made.resolve("a.npz").toFile())) {
      assertTrue(zip.size() >= 7);
    }
    assertTrue(said().contains("; interrupted]"), said());
  }
}
