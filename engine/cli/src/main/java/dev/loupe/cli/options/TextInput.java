package dev.loupe.cli.options;

import dev.loupe.cli.terminal.InputException;
import dev.loupe.cli.terminal.Terminal;
import dev.loupe.generate.Prompt;
import dev.loupe.weights.io.FileFault;
import dev.loupe.weights.io.InputFile;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import org.jspecify.annotations.Nullable;
import picocli.CommandLine.Option;
import picocli.CommandLine.Parameters;

/** Where the text to read comes from: an argument, a file, standard input, or ids. */
public final class TextInput {
  private static final int MOST_BYTES = 256 << 20;

  @Parameters(
      arity = "0..1",
      paramLabel = "TEXT",
      description = "What to read; - or nothing with a pipe reads standard input.")
  @Nullable String text;

  @Option(names = "--file", paramLabel = "F", description = "Read a UTF-8 file, as it is.")
  @Nullable Path file;

  @Option(
      names = "--ids",
      paramLabel = "1,2,3",
      split = ",",
      hideParamSyntax = true,
      description = "Token ids instead of text.")
  int @Nullable [] ids;

  @Option(names = "--special", description = "Read <|endoftext|> as that token, not as plain text.")
  boolean special;

  @Option(
      names = "--no-bos",
      description = "Put nothing in front of TEXT, whatever the tokenizer's files say.")
  boolean noBos;

  public Prompt prompt(Terminal terminal) throws IOException {
    if ((text == null ? 0 : 1) + (file == null ? 0 : 1) + (ids == null ? 0 : 1) > 1) {
      throw new IllegalArgumentException("give one of TEXT, --file and --ids, not several");
    }
    if (ids != null) {
      if (special || noBos) {
        throw new IllegalArgumentException(
            "%s is about text: ids say every token as it is, leave one of them out"
                .formatted(special ? "--special" : "--no-bos"));
      }
      return Prompt.ids(ids);
    }
    return Prompt.text(read(terminal)).special(special).front(!noBos);
  }

  /**
   * A second text, read as the first is: ids where those are ids.
   *
   * @param option that gave it
   */
  public Prompt another(String option, String second) {
    if (ids == null) {
      return Prompt.text(second).special(special).front(!noBos);
    }
    try {
      return Prompt.ids(
          Arrays.stream(second.split(",", -1))
              .map(String::strip)
              .mapToInt(Integer::parseUnsignedInt)
              .toArray());
    } catch (NumberFormatException e) {
      throw new IllegalArgumentException(
          "%s %s: ids with commas between them, as --ids has".formatted(option, second));
    }
  }

  private String read(Terminal terminal) throws IOException {
    if (file != null) {
      return decode(file.toString(), bytes(file));
    }
    if (text == null ? !terminal.inIsTerminal() : text.equals("-")) {
      try {
        return decode("standard input", terminal.readAll(MOST_BYTES));
      } catch (InputException e) {
        throw e;
      } catch (IOException e) {
        throw new InputException("standard input can't be read: " + FileFault.of(e));
      }
    }
    return text == null ? "" : text;
  }

  private static byte[] bytes(Path file) throws IOException {
    if (Files.isRegularFile(file) && Files.size(file) == 0) {
      return new byte[0];
    }
    return InputFile.read(file, MOST_BYTES, "a text").array();
  }

  private static String decode(String source, byte[] bytes) throws InputException {
    try {
      return StandardCharsets.UTF_8.newDecoder().decode(ByteBuffer.wrap(bytes)).toString();
    } catch (CharacterCodingException e) {
      throw new InputException(
          source + " is not UTF-8 text; convert it, for example with iconv -f latin1 -t utf-8");
    }
  }
}
