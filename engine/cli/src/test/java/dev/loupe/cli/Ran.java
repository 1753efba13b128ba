package dev.loupe.cli;

import static java.nio.charset.StandardCharsets.UTF_8;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import dev.loupe.cli.terminal.Terminal;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.function.Supplier;
import java.util.stream.Stream;

/** One run of the program within this process: its exit code and what it wrote. */
public record Ran(int code, String out, String err) {

  public static Ran loupe(Object... args) {
    return reading("", args);
  }

  public static Ran reading(String in, Object... args) {
    return reading(in.getBytes(UTF_8), args);
  }

  static Ran reading(byte[] in, Object... args) {
    ByteArrayOutputStream out = new ByteArrayOutputStream();
    return run(in, out, false, args);
  }

  /** With these defaults of options. */
  static Ran with(Supplier<Defaults> defaults, Object... args) {
    return run(new byte[0], new ByteArrayOutputStream(), false, defaults, args);
  }

  /** All three streams are a terminal. */
  public static Ran onTerminal(Object... args) {
    return run(new byte[0], new ByteArrayOutputStream(), true, args);
  }

  /** Standard output is {@code out}. */
  static Ran into(OutputStream out, Object... args) {
    return run(new byte[0], out, false, args);
  }

  private static Ran run(byte[] in, OutputStream out, boolean terminals, Object... args) {
    return run(in, out, terminals, Defaults::none, args);
  }

  private static Ran run(
      byte[] in, OutputStream out, boolean terminals, Supplier<Defaults> defaults, Object... args) {
    ByteArrayOutputStream err = new ByteArrayOutputStream();
    String[] words = Stream.of(args).map(Object::toString).toArray(String[]::new);
    Terminal terminal = Terminal.of(new ByteArrayInputStream(in), out, err, terminals);
    int code = Main.run(terminal, defaults, words);
    String printed = out instanceof ByteArrayOutputStream bytes ? bytes.toString(UTF_8) : "";
    return new Ran(code, printed, err.toString(UTF_8));
  }

  /** It ended well. */
  public Ran well() {
    assertEquals(0, code, err);
    return this;
  }

  /** It printed nothing but one sentence, on standard error, with these words. */
  public Ran refused(int expected, Object... words) {
    assertEquals("", out);
    assertTrue(err.startsWith("loupe: "), err);
    assertTrue(err.endsWith("\n"), err);
    assertEquals(1, err.lines().count(), err);
    assertFalse(err.contains("Exception") || err.contains("defect"), err);
    for (Object word : words) {
      assertTrue(err.contains(word.toString()), () -> "no <" + word + "> in: " + err);
    }
    assertEquals(expected, code, err);
    return this;
  }

  /** The objects on standard output, one a line. */
  public List<JsonObject> json() {
    return out.lines().map(line -> JsonParser.parseString(line).getAsJsonObject()).toList();
  }

  /** What a folder holds, in order. */
  public static List<String> names(Path folder) throws IOException {
    try (Stream<Path> files = Files.list(folder)) {
      return files.map(file -> file.getFileName().toString()).sorted().toList();
    }
  }
}
