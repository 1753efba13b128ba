package dev.loupe.cli;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** The script of {@code loupe completion}, in bash. */
class CompletionCommandTest {
  @TempDir static Path folder;

  @BeforeAll
  static void write() throws Exception {
    assumeTrue(Files.isExecutable(Path.of("/bin/bash")), "there is no bash");
    Files.writeString(folder.resolve("script"), Ran.loupe("completion").well().out());
  }

  @ParameterizedTest
  @CsvSource(
      delimiter = '|',
      nullValues = "-",
      value = {
        "loupe gen                          | generate",
        "loupe weights make                 | make-random",
        "loupe bench dec                    | decode decode-attention",
        "loupe generate --temp              | --temperature",
        "loupe generate --backend cu        | cuda",
        "loupe generate --dtype b           | bf16",
        "loupe generate --activation gelu_n | gelu_new",
        "loupe generate --ablate-to m       | mean",
        "loupe generate --bogus             | -",
      })
  void completes(String line, String expected) throws Exception {
    String bash =
        """
        source "$1"
        shift
        COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMP_LINE="$*" COMP_POINT=${#COMP_LINE}
        _complete_loupe
        echo ${COMPREPLY[@]}
        """;
    List<String> command =
        new ArrayList<>(
            List.of("/bin/bash", "-c", bash, "bash", folder.resolve("script").toString()));
    command.addAll(List.of(line.split(" +", -1)));
    Process process =
        new ProcessBuilder(command).redirectError(ProcessBuilder.Redirect.DISCARD).start();
    String out =
        new String(process.getInputStream().readAllBytes(), StandardCharsets.UTF_8).strip();
    assertEquals(expected == null ? "" : expected, out);
  }
}
