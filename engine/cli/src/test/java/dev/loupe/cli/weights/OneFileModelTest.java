package dev.loupe.cli.weights;

import static java.nio.charset.StandardCharsets.ISO_8859_1;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.loupe.Loupe;
import dev.loupe.Options;
import dev.loupe.TinyModel;
import dev.loupe.cli.Ran;
import dev.loupe.cli.terminal.ExitCode;
import dev.loupe.generate.GenerateRequest;
import dev.loupe.generate.Generation;
import dev.loupe.generate.Token;
import dev.loupe.model.Golden;
import dev.loupe.sampling.Sampling;
import dev.loupe.text.Tokenizer;
import dev.loupe.text.TokenizerFiles;
import dev.loupe.weights.Checkpoint;
import dev.loupe.weights.Gpt2Gguf;
import dev.loupe.weights.ggml.GgmlType;
import dev.loupe.weights.io.Progress;
import dev.loupe.weights.vocabulary.ByteAlphabet;
import dev.loupe.weights.vocabulary.Vocabulary;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Optional;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/** A model in one file that carries its tokenizer runs as the folder does that it was made from. */
class OneFileModelTest {
  private static final String TEXT = "What, ho! caf\u00e9 <|endoftext|> \u65e5\n\n  x";

  @TempDir Path folder;

  private Path gguf(GgmlType type) throws Exception {
    Path file = folder.resolve("m.gguf");
    try (Checkpoint checkpoint = Checkpoint.open(Golden.DEMO_MODEL)) {
      Gpt2Gguf.write(
          checkpoint,
          TokenizerFiles.vocabulary(checkpoint, Optional.empty()),
          type,
          file,
          Progress.NONE);
    }
    return file;
  }

  private static Generation run(Loupe loupe) {
    return loupe
        .run(GenerateRequest.text(TEXT).tokens(30).sampling(Sampling.greedy()).logprobs(1))
        .getFirst();
  }

  @ParameterizedTest
  @EnumSource(
      value = GgmlType.class,
      names = {"F16", "F32"})
  void theSameTokensToTheLastBit(GgmlType type) throws Exception {
    try (Loupe expected = Loupe.open(Golden.DEMO_MODEL, Options.defaults().threads(2));
        Loupe actual = Loupe.open(gguf(type), Options.defaults().threads(2))) {
      assertEquals(List.of(), actual.notes());
      List<Token> tokens = run(expected).tokens();
      List<Token> same = run(actual).tokens();
      assertEquals(tokens.size(), same.size());
      for (int i = 0; i < tokens.size(); i++) {
        assertEquals(tokens.get(i).id(), same.get(i).id());
        assertEquals(tokens.get(i).label(), same.get(i).label());
        assertEquals(tokens.get(i).logprob(), same.get(i).logprob(), "bits of token " + i);
      }
      for (boolean special : new boolean[] {false, true}) {
        assertArrayEquals(
            expected.tokenizer().encode(TEXT, special), actual.tokenizer().encode(TEXT, special));
      }
      int end = actual.tokenizer().idOf("<|endoftext|>").orElseThrow();
      assertTrue(actual.tokenizer().isSpecial(end));
    }
  }

  @Test
  void quantisedWeightsRun() throws Exception {
    Path file = gguf(GgmlType.Q8_0);
    Ran ran = Ran.loupe("generate", "-m", file, "ROMEO:", "-n", "5", "--greedy", "-q").well();
    assertFalse(ran.out().isBlank());
    assertEquals("", ran.err());
  }

  @Test
  void filesBesideItComeFirst() throws Exception {
    Path file = gguf(GgmlType.F16);
    Files.writeString(folder.resolve("tokenizer.json"), "{}");
    Ran.loupe("generate", "-m", file, "x").refused(ExitCode.BAD_INPUT, "tokenizer.json");
  }

  @Test
  void whatWasAssumedIsSaid() throws Exception {
    Path file = gguf(GgmlType.F16);
    String bytes = Files.readString(file, ISO_8859_1);
    Files.writeString(file, bytes.replaceFirst("gpt-2", "gpt-x"), ISO_8859_1);
    List<Object> words = List.of("generate", "-m", file, "ROMEO:", "-n", "1");
    Ran loud = Ran.loupe(words.toArray()).well();
    assertTrue(loud.err().contains("[the tokenizer parts words as gpt-x does"), loud.err());
    List<Object> quiet = new ArrayList<>(words);
    quiet.add("-q");
    assertEquals("", Ran.loupe(quiet.toArray()).well().err());
  }

  /** As nanoGPT's: one token for each character, and no merges. */
  @Test
  void aVocabularyOfCharacters() throws Exception {
    List<String> characters = List.of("a", "b", "\u00e9", "\u65e5", "\n", " ");
    List<Vocabulary.Token> tokens = new ArrayList<>();
    for (String character : characters) {
      StringBuilder spelled = new StringBuilder();
      for (byte b : character.getBytes(StandardCharsets.UTF_8)) {
        spelled.append(ByteAlphabet.symbol(b & 0xFF));
      }
      tokens.add(new Vocabulary.Token(spelled.toString(), Vocabulary.Kind.NORMAL));
    }
    Path file = folder.resolve("characters.gguf");
    Path tiny = TinyModel.in(folder.resolve("tiny")).folder();
    try (Checkpoint checkpoint = Checkpoint.open(tiny)) {
      Vocabulary vocabulary = new Vocabulary(tokens, List.of());
      Gpt2Gguf.write(checkpoint, vocabulary, GgmlType.F16, file, Progress.NONE);
    }
    try (Loupe loupe = Loupe.open(file, Options.defaults().threads(1))) {
      Tokenizer tokenizer = loupe.tokenizer();
      int[] ids = tokenizer.encode("ab\u65e5 \u00e9\na", false);
      assertArrayEquals(new int[] {0, 1, 3, 5, 2, 4, 0}, ids);
      assertEquals("ab\u65e5 \u00e9\na", tokenizer.decode(ids));
      assertArrayEquals(new int[0], tokenizer.encode("", false));
      Exception e =
          assertThrows(
              IllegalArgumentException.class, () -> tokenizer.encode("b\u00e9\u00e8a", false));
      assertTrue(String.valueOf(e.getMessage()).contains("U+00E8"), e.getMessage());
      Generation run = loupe.run(GenerateRequest.text("ab").tokens(20)).getFirst();
      int[] written = run.tokens().stream().mapToInt(Token::id).toArray();
      assertTrue(Arrays.stream(written).allMatch(id -> id < 6), Arrays.toString(written));
      tokenizer.close();
      assertThrows(IllegalStateException.class, () -> tokenizer.encode("a", false));
    }
  }

  @Test
  void onnxIsRefusedInASentence() throws Exception {
    Path file = Files.write(folder.resolve("model.onnx"), new byte[] {8, 8, 18, 0});
    Ran.loupe("generate", "-m", file, "x").refused(ExitCode.BAD_INPUT, file, "ONNX");
  }
}
