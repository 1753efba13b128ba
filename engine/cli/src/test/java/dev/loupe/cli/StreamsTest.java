package dev.loupe.cli;

import static java.nio.charset.StandardCharsets.ISO_8859_1;
import static java.nio.charset.StandardCharsets.UTF_8;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.google.gson.JsonParser;
import dev.loupe.cli.terminal.ExitCode;
import dev.loupe.cli.terminal.Terminal;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** Where text comes from, and where it goes. */
class StreamsTest {
  @TempDir Path folder;

  /** An output that takes some bytes and then fails. */
  private static final class Failing extends OutputStream {
    private final String reason;
    private int room;
    private int failures;

    Failing(String reason, int room) {
      this.reason = reason;
      this.room = room;
    }

    @Override
    public void write(int b) throws IOException {
      if (room-- <= 0) {
        failures++;
        throw new IOException(reason);
      }
    }
  }

  @ParameterizedTest
  @ValueSource(
      strings = {
        "generate x -n 20",
        "generate x -n 2 --json",
        "attention x",
        "weights inspect",
        "doctor",
        "--help",
        "generate --help",
        "--version"
      })
  void endsQuietlyWhereNobodyReads(String command) {
    Failing out = new Failing("Broken pipe", 1);
    Ran ran = Ran.into(out, (Object[]) command.split(" ", -1));
    assertEquals(0, ran.code());
    assertEquals("", ran.err());
    assertEquals(1, out.failures, "it stops at once");
  }

  @ParameterizedTest
  @ValueSource(
      strings = {
        "generate x -n 20",
        "generate x -n 2 --json",
        "attention x",
        "weights inspect",
        "doctor",
        "--help",
        "generate --help",
        "--version"
      })
  void saysThatOutputCannotBeWritten(String command) {
    Failing out = new Failing("No space left on device", 1);
    Ran.into(out, (Object[]) command.split(" ", -1))
        .refused(ExitCode.FAILED, "standard output can't be written", "No space left on device");
    assertEquals(1, out.failures);
  }

  @Test
  void aFileIsStillWrittenWhereNobodyReadsTheText() throws IOException {
    Path file = folder.resolve("a.json");
    Failing out = new Failing("Broken pipe", 1);
    Ran ran = Ran.into(out, "generate", "x", "-n", 20, "--greedy", "--attention", file);
    assertEquals(0, ran.code(), ran.err());
    assertEquals(1, out.failures, "it is not tried again");
    String whole = Ran.loupe("generate", "x", "-n", 20, "--greedy").well().out();
    assertEquals(
        whole,
        JsonParser.parseString(Files.readString(file)).getAsJsonObject().get("text").getAsString());
  }

  @Test
  void aTextIsTheSameFromEverySource() throws IOException {
    String text = "Où est ROMEO ? 🎭\n\n  Ici.\n";
    Path file = Files.writeString(folder.resolve("text"), text);
    List<Ran> runs =
        List.of(
            Ran.loupe("generate", text, "-n", 12, "--greedy", "--json"),
            Ran.reading(text, "generate", "-n", 12, "--greedy", "--json"),
            Ran.reading(text, "generate", "-", "-n", 12, "--greedy", "--json"),
            Ran.reading("unread", "generate", "--file", file, "-n", 12, "--greedy", "--json"));
    for (Ran ran : runs) {
      assertEquals(
          runs.getFirst().well().json().getFirst().get("tokens"),
          ran.well().json().getFirst().get("tokens"));
    }
    StringBuilder ids = new StringBuilder();
    runs.getFirst()
        .json()
        .getFirst()
        .getAsJsonArray("tokens")
        .forEach(
            token -> {
              if (!token.getAsJsonObject().get("generated").getAsBoolean()) {
                ids.append(ids.isEmpty() ? "" : ", ").append(token.getAsJsonObject().get("id"));
              }
            });
    Ran fromIds = Ran.loupe("generate", "--ids", ids, "-n", 12, "--greedy", "--json").well();
    assertEquals(
        runs.getFirst().json().getFirst().get("tokens"), fromIds.json().getFirst().get("tokens"));
  }

  @ParameterizedTest
  @ValueSource(strings = {"generate", "attention"})
  void readsUtf8Only(String command) throws IOException {
    byte[] latin = "naïve".getBytes(ISO_8859_1);
    Path file = Files.write(folder.resolve("latin"), latin);
    Ran.reading(latin, command).refused(ExitCode.BAD_INPUT, "standard input", "not UTF-8");
    Ran.reading(latin, command, "-").refused(ExitCode.BAD_INPUT, "standard input", "not UTF-8");
    Ran.loupe(command, "--file", file).refused(ExitCode.BAD_INPUT, file, "not UTF-8");
    byte[] cut = "é".getBytes(UTF_8);
    Ran.reading(new byte[] {cut[0]}, command).refused(ExitCode.BAD_INPUT, "not UTF-8");
  }

  @ParameterizedTest
  @ValueSource(strings = {"generate", "attention"})
  void readsFilesThatAreThere(String command) {
    Path missing = folder.resolve("missing");
    Ran.loupe(command, "--file", missing).refused(ExitCode.BAD_INPUT, missing, "does not exist");
    Ran.loupe(command, "--file", folder)
        .refused(ExitCode.BAD_INPUT, folder, "is not a regular file but a folder");
  }

  @Test
  void aFailingInputIsNoDefect() {
    InputStream in =
        new InputStream() {
          @Override
          public int read() throws IOException {
            throw new IOException("Input/output error");
          }

          @Override
          public int read(byte[] to, int offset, int count) throws IOException {
            return read();
          }
        };
    ByteArrayOutputStream out = new ByteArrayOutputStream();
    ByteArrayOutputStream err = new ByteArrayOutputStream();
    int code = Main.run(Terminal.of(in, out, err, false), "generate");
    new Ran(code, out.toString(UTF_8), err.toString(UTF_8))
        .refused(ExitCode.BAD_INPUT, "standard input", "Input/output error");
  }

  @Test
  void aTerminalIsNotReadFrom() {
    Ran ran = Ran.onTerminal("generate", "-n", 3, "--greedy");
    assertEquals(0, ran.code());
    assertTrue(ran.out().endsWith("\n"), "the prompt of the shell begins a line");
    assertTrue(ran.err().contains("[read 1 token in"), ran.err());
  }
}
