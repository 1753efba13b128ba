package dev.loupe.cli;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import dev.loupe.TinyModel;
import dev.loupe.cli.terminal.ExitCode;
import dev.loupe.cli.terminal.Terminal;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** Files beside a model that were made to do harm: exit code 3, one short sentence. */
class HostileFilesTest {
  @TempDir Path folder;
  private TinyModel model;

  @BeforeEach
  void make() throws IOException {
    model = TinyModel.in(folder.resolve("model"));
  }

  private Ran run() {
    return Ran.loupe("generate", "a", "-n", 1, "--backend", "cpu", "-m", model.folder());
  }

  private void refused(Object... words) {
    Ran ran = run().refused(ExitCode.BAD_INPUT, words);
    assertTrue(ran.err().length() < 1000, () -> ran.err().length() + " characters");
  }

  private static void pipe(Path at) throws Exception {
    assumeTrue(Files.exists(Path.of("/usr/bin/mkfifo")), "no mkfifo here");
    Files.deleteIfExists(at);
    assertEquals(0, new ProcessBuilder("/usr/bin/mkfifo", at.toString()).start().waitFor());
  }

  @ParameterizedTest
  @ValueSource(
      strings = {
        "tokenizer.json",
        "tokenizer_config.json",
        "added_tokens.json",
        "special_tokens_map.json",
        "config.json",
        "generation_config.json",
        "model.safetensors"
      })
  void noPipeIsWaitedFor(String name) throws Exception {
    pipe(model.folder().resolve(name));
    refused(name, "a pipe or a device");
  }

  @Test
  void noDeviceIsReadToItsEnd() throws IOException {
    Files.delete(model.tokenizer());
    Files.writeString(model.folder().resolve("vocab.json"), "{\"a\": 0}");
    Files.createSymbolicLink(model.folder().resolve("merges.txt"), Path.of("/dev/zero"));
    refused("merges.txt", "a pipe or a device");
    Ran.loupe("attention", "--file", "/dev/zero", "-m", model.folder())
        .refused(ExitCode.BAD_INPUT, "/dev/zero", "a pipe or a device");
  }

  @Test
  void noTextIsEndless() {
    InputStream zeros =
        new InputStream() {
          @Override
          public int read() {
            return 'a';
          }

          @Override
          public int read(byte[] to, int offset, int count) {
            java.util.Arrays.fill(to, offset, offset + count, (byte) 'a');
            return count;
          }
        };
    java.io.ByteArrayOutputStream err = new java.io.ByteArrayOutputStream();
    Terminal terminal = Terminal.of(zeros, OutputStream.nullOutputStream(), err, false);
    String[] args = {"attention", "-m", model.folder().toString()};
    assertEquals(ExitCode.BAD_INPUT, Main.run(terminal, args), err::toString);
    assertTrue(err.toString(java.nio.charset.StandardCharsets.UTF_8).contains("standard input"));
  }

  /** ESC ] 0 ; sets a terminal's title. */
  @Test
  void aFilesControlCharactersDoNothing() throws IOException {
    String title = "\\u001b]0;owned\\u0007\\n\\u202e";
    TinyModel.replace(
        model.tokenizer(),
        "\"added_tokens\": [",
        "\"added_tokens\": [{\"id\": -1, \"content\": \"" + title + "\"},");
    refused("U+001B]0;owned");
    assertTrue(run().err().chars().noneMatch(c -> c == 0x1B || c == 7 || c == 0x202E));
  }

  @Test
  void aFilesLongValuesAreCut() throws IOException {
    String content = "x".repeat(3_000_000);
    TinyModel.replace(
        model.tokenizer(),
        "\"added_tokens\": [",
        "\"added_tokens\": [{\"id\": -1, \"content\": \"" + content + "\"},");
    refused("xxx... (3000000 characters)");
  }

  @ParameterizedTest
  @ValueSource(
      strings = {
        "{\"id\": null, \"content\": \"x\"}",
        "{\"id\": 1099511627776, \"content\": \"x\"}",
        "{\"id\": 1.5, \"content\": \"x\"}",
        "{\"id\": [1], \"content\": \"x\"}",
        "{\"id\": 1020, \"content\": null}",
        "{\"id\": 1020, \"content\": {}}",
        "{\"id\": 1020, \"content\": \"x\", \"special\": 7}",
        "null",
        "[]"
      })
  void anAddedTokenIsWhatItMustBe(String token) throws IOException {
    TinyModel.replace(
        model.tokenizer(), "\"added_tokens\": [", "\"added_tokens\": [" + token + ",");
    refused("tokenizer.json", ", not ");
  }

  @ParameterizedTest
  @ValueSource(
      strings = {
        "\"post_processor\": {\"type\": \"TemplateProcessing\"}",
        "\"post_processor\": {\"type\": \"TemplateProcessing\", \"single\": [{\"SpecialToken\": 1}]}",
        "\"post_processor\": {\"type\": \"TemplateProcessing\", \"single\": [{\"SpecialToken\": {\"id\": \"a\"}}]}",
        "\"post_processor\": {\"type\": \"RobertaProcessing\", \"cls\": []}",
        "\"post_processor\": {\"type\": \"Sequence\"}",
        "\"post_processor\": [1]",
        "\"normalizer\": {\"type\": null}",
        "\"normalizer\": 7",
        "\"pre_tokenizer\": {\"type\": \"Split\", \"pattern\": {\"Regex\": null}}",
        "\"decoder\": {\"type\": \"WordPiece\"}",
        "\"decoder\": {\"type\": \"Strip\", \"content\": \"a\", \"start\": 1099511627776, \"stop\": 0}"
      })
  void aStepIsWhatItMustBe(String step) throws IOException {
    String name = step.substring(0, step.indexOf(':'));
    String text = Files.readString(model.tokenizer());
    Files.writeString(model.tokenizer(), text.replaceFirst(name + ":", "\"unused\":"));
    TinyModel.replace(model.tokenizer(), "\"added_tokens\": [", step + ", \"added_tokens\": [");
    refused("tokenizer.json", ", not ");
  }

  @ParameterizedTest
  @ValueSource(
      strings = {
        "{\"added_tokens_decoder\": {\"0\": {\"content\": null}}}",
        "{\"added_tokens_decoder\": {\"0\": {\"content\": 7}}}",
        "{\"added_tokens_decoder\": {\"1099511627776\": {\"content\": \"a\"}}}",
        "{\"bos_token\": {\"content\": null}}",
        "{\"add_prefix_space\": \"yes\"}",
        "{\"tokenizer_class\": 7}"
      })
  void aSettingIsWhatItMustBe(String settings) throws IOException {
    Files.writeString(model.folder().resolve("tokenizer_config.json"), settings);
    refused("tokenizer_config.json");
  }

  @ParameterizedTest
  @ValueSource(
      strings = {
        "tokenizer.json",
        "tokenizer_config.json",
        "added_tokens.json",
        "config.json",
        "generation_config.json"
      })
  void depthIsBounded(String name) throws IOException {
    String deep = "[".repeat(5000) + "]".repeat(5000);
    Files.writeString(model.folder().resolve(name), "{\"normalizer\": " + deep + "}");
    refused(name, "nested deeper than 32 levels");
  }

  @Test
  void tokensAreCounted() throws IOException {
    Files.delete(model.tokenizer());
    StringBuilder vocab = new StringBuilder("{\"a\":0");
    for (int id = 1; id < 1_100_000; id++) {
      vocab.append(",\"").append(id).append("\":").append(id);
    }
    Files.writeString(model.folder().resolve("vocab.json"), vocab.append('}'));
    Files.writeString(model.folder().resolve("merges.txt"), "a b\n");
    refused("vocab.json", "more than 1048576 tokens");
  }

  @Test
  void sentinelsAreCounted() throws IOException {
    Files.delete(model.tokenizer());
    Files.write(
        model.folder().resolve("spiece.model"), new byte[] {0x0A, 5, 0x0A, 1, 'a', 0x18, 2});
    Files.writeString(
        model.folder().resolve("tokenizer_config.json"),
        "{\"tokenizer_class\": \"T5Tokenizer\", \"extra_ids\": 2000000000}");
    refused("extra_ids is 2000000000");
  }
}
