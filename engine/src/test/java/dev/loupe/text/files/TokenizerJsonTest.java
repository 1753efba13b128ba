package dev.loupe.text.files;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.loupe.text.TestData;
import dev.loupe.text.Tokenizer;
import dev.loupe.weights.io.CheckpointException;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import org.jspecify.annotations.Nullable;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

class TokenizerJsonTest {
  private static final String BYTE_LEVEL =
      """
      "pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true}\
      """;

  @TempDir private Path folder;

  /** A tokenizer.json of the letters a and b. */
  private static String json(String added, String vocab, String merges) {
    return "{\"added_tokens\":[%s],%s,\"model\":{\"type\":\"BPE\",\"vocab\":{%s},\"merges\":[%s]}}"
        .formatted(added, BYTE_LEVEL, vocab, merges);
  }

  private static final String AB = json("", "'a':0,'b':1,'ab':2", "'a b'").replace('\'', '"');

  private Tokenizer open(String json) throws IOException {
    Files.writeString(folder.resolve("tokenizer.json"), json.replace('\'', '"'));
    return Tokenizer.open(folder);
  }

  private String refusal(String json) {
    CheckpointException e = assertThrows(CheckpointException.class, () -> open(json).close());
    String message = String.valueOf(e.getMessage());
    assertTrue(message.contains(folder.toString()), message);
    assertEquals(1, message.lines().count(), message);
    return message;
  }

  private void assertRefused(String fault, String json) {
    String message = refusal(json);
    assertTrue(message.contains(fault), message);
  }

  @Test
  void smallTokenizerWithBothKindsOfMerges() throws IOException {
    try (Tokenizer tokenizer = open(AB)) {
      assertArrayEquals(new int[] {2, 0, 0, 2}, tokenizer.encode("abaaab", false));
      assertEquals(3, tokenizer.size());
    }
    try (Tokenizer tokenizer = open(AB.replace("\"a b\"", "[\"a\",\"b\"]"))) {
      assertArrayEquals(new int[] {2, 0, 0, 2}, tokenizer.encode("abaaab", false));
    }
  }

  @Test
  void oldFilesDoNotNameTheModelAndTruncationPaddingAndDropoutAreIgnored() throws IOException {
    String json =
        AB.replace("\"type\":\"BPE\",", "\"dropout\":0.9,\"unk_token\":null,")
            .replaceFirst(
                "\\{",
                "{'truncation':{'direction':'Right','max_length':2,'strategy':'LongestFirst',"
                    + "'stride':0},"
                    + "'padding':{'strategy':{'Fixed':9},'direction':'Right',"
                    + "'pad_to_multiple_of':null,"
                    + "'pad_id':0,'pad_type_id':0,'pad_token':'a'},");
    try (Tokenizer tokenizer = open(json)) {
      for (int i = 0; i < 20; i++) {
        assertArrayEquals(new int[] {2, 2, 2}, tokenizer.encode("ababab", false));
      }
    }
  }

  @Test
  void gapsInTheIdsAndTokensBeyondTheVocabularyKeepTheirIds() throws IOException {
    String added =
        "{'id':100,'content':'<s>','special':true},{'id':50,'content':'a b','special':false}";
    try (Tokenizer tokenizer = open(json(added, "'a':3,'b':1,'<s>':100", ""))) {
      assertEquals(101, tokenizer.size());
      assertFalse(tokenizer.contains(0));
      assertFalse(tokenizer.contains(99));
      assertTrue(tokenizer.contains(100));
      assertArrayEquals(new int[] {3, 50, 100, 1}, tokenizer.encode("aa b<s>b", true));
      assertEquals("aa bb", tokenizer.decode(new int[] {3, 50, 100, 1}));
      assertThrows(IllegalArgumentException.class, () -> tokenizer.raw(99));
    }
  }

  @Test
  void aByteWithoutATokenIsAnErrorAndNotDropped() throws IOException {
    try (Tokenizer tokenizer = open(AB)) {
      IllegalArgumentException e =
          assertThrows(IllegalArgumentException.class, () -> tokenizer.encode("abé", false));
      assertEquals("the tokenizer has no token for byte C3 of the text", e.getMessage());
    }
    String unknown = AB.replace("\"type\":\"BPE\"", "'type':'BPE','unk_token':'b'");
    try (Tokenizer tokenizer = open(unknown)) {
      assertArrayEquals(new int[] {2, 1, 1}, tokenizer.encode("abé", false));
    }
  }

  @Test
  void brokenJson() throws IOException {
    String whole = Files.readString(TestData.SHAKESPEARE.resolve("tokenizer.json"));
    for (int length : new int[] {0, 1, 17, 400, 800, 5_000, whole.length() - 2}) {
      refusal(whole.substring(0, length));
    }
    assertRefused("goes on after its JSON", AB + "{}");
    refusal("[]");
    refusal("null");
    refusal("[".repeat(100_000));
    refusal("{\"model\":".repeat(100_000));
    refusal("{'normalizer':" + "[".repeat(100_000));
    refusal(AB.replace("\"a b\"", "7,{}"));
    refusal(AB.replace("{\"a\"", "[\"a\""));
  }

  @Test
  void notUtf8() throws IOException {
    Files.write(
        folder.resolve("tokenizer.json"),
        AB.replace("ab", "é").getBytes(StandardCharsets.ISO_8859_1));
    CheckpointException e = assertThrows(CheckpointException.class, () -> Tokenizer.open(folder));
    assertTrue(String.valueOf(e.getMessage()).contains("not valid UTF-8"), e::getMessage);
  }

  @ParameterizedTest
  @CsvSource(
      delimiter = '|',
      quoteCharacter = '`',
      value = {
        "'vocab':{'a':0,'b':1,'ab':2}, | | no model.vocab",
        ",'merges':['a b'] | | no model.merges",
        "'type':'BPE' | 'type':'Guess' | its model is Guess",
        "'type':'BPE' | 'type':'Unigram' | not that of a Unigram model",
        "'type':'BPE' | 'end_of_word_suffix':'</w>' | end_of_word_suffix",
        "'type':'BPE' | 'unk_token':'?' | unk_token '?' is not in",
        "{'a':0,'b':1,'ab':2} | [['a',-1.5]] | not that of a BPE",
        "'ab':2 | 'ab':1 | id 1 stands for two tokens",
        "'ab':2 | 'ab':-2 | has id -2",
        "'ab':2 | 'ab':2000000000 | has id 2000000000",
        "'ab':2 | 'ab':99999999999 | 99999999999",
        "'ab':2 | 'ab':1.5 | 1.5",
        "'ab':2 | 'ab':null | the id of token 'ab' is null",
        "'ab':2 | 'ab':1099511627776 | the id of token 'ab' is 1099511627776",
        "'ab':2 | 'ab':2,'b':1 | 'b' appears twice",
        "'ab':2 | 'ab':2,'▁the':3 | token '▁the' (id 3) has U+2581",
        "'ab':2 | 'ab':2,'a b':3 | token 'a b' (id 3) has U+0020",
        "'a':0,'b':1,'ab':2 | | vocabulary is empty",
        "'a b' | 'a c' | not a usable tokenizer",
        "'a b' | 'ab' | merge 1, 'ab', is not two tokens",
        "'a b' | ['a','b','c'] | merges[0][2]",
        "'ByteLevel' | 'Guess' | pre_tokenizer is Guess",
        "'ByteLevel' | [] | not a usable tokenizer",
        "'added_tokens':[] | 'normalizer':{'type':'Guess'} | normalizer is Guess",
        "'added_tokens':[] | 'added_tokens':[{'id':9}] | content of an added token is missing",
        "'added_tokens':[] | 'added_tokens':[7] | not a usable tokenizer",
        "'added_tokens':[] | 'added_tokens':[{'id':9,'content':''}] | 9 is empty",
        "'added_tokens':[] | 'added_tokens':[{'id':-9,'content':'x'}] | has id -9",
        "'added_tokens':[] | 'added_tokens':[{'id':1,'content':'x'}] | id 1 stands for two",
        "'added_tokens':[] | 'added_tokens':[{'id':9,'content':'b'}] | two ids, 1 and 9",
      })
  void unusable(String part, @Nullable String replacement, String fault) {
    String old = part.replace('\'', '"');
    assertTrue(AB.contains(old), part);
    String broken = AB.replace(old, replacement == null ? "" : replacement);
    assertRefused(fault.replace('\'', '"'), broken);
  }

  @Test
  void patternsThatCouldTakeTooLongAreRefused() throws IOException {
    String sequence =
        "'pre_tokenizer':{'type':'Sequence','pretokenizers':[%s,"
            + "{'type':'ByteLevel','add_prefix_space':false,'trim_offsets':true}]}";
    String split =
        "{'type':'Split','pattern':{'Regex':'(a+)+$'},'behavior':'Isolated','invert':false}";
    assertRefused("(a+)+$ could take too long", AB.replace(BYTE_LEVEL, sequence.formatted(split)));
    String digits = "{'type':'Digits','individual_digits':true}";
    try (Tokenizer tokenizer = open(AB.replace(BYTE_LEVEL, sequence.formatted(digits)))) {
      assertArrayEquals(new int[] {2, 2}, tokenizer.encode("abab", false));
    }
    String nfc =
        "'normalizer':{'type':'Sequence','normalizers':[{'type':'NFC'},{'type':'Lowercase'}]},";
    try (Tokenizer tokenizer = open(AB.replaceFirst("\\{", "{" + nfc))) {
      assertArrayEquals(new int[] {2}, tokenizer.encode("ab", false));
    }
  }

  @Test
  void nothingThere() {
    CheckpointException e = assertThrows(CheckpointException.class, () -> Tokenizer.open(folder));
    assertEquals(
        "no tokenizer in "
            + folder
            + ": looked for tokenizer.json, for vocab.json with merges.txt, for encoder.json with"
            + " vocab.bpe, for vocab.txt, and for spiece.model; copy them from where the model came"
            + " from",
        e.getMessage());
    Path missing = folder.resolve("missing");
    assertThrows(CheckpointException.class, () -> Tokenizer.open(missing));
  }

  /** The names under which OpenAI published GPT-2. */
  @Test
  void thePairUnderItsOldNames() throws IOException {
    Path gpt2 = TestData.GPT2;
    Files.copy(gpt2.resolve("vocab.json"), folder.resolve("encoder.json"));
    Path missing = folder.resolve("vocab.bpe");
    assertThrows(CheckpointException.class, () -> Tokenizer.open(folder));
    Files.copy(gpt2.resolve("merges.txt"), missing);
    try (Tokenizer tokenizer = Tokenizer.open(folder)) {
      assertArrayEquals(new int[] {15496, 995}, tokenizer.encode("Hello world", false));
      assertTrue(tokenizer.isSpecial(50256));
    }
  }

  private Tokenizer openPair(String vocab, String merges) throws IOException {
    Files.writeString(folder.resolve("vocab.json"), vocab.replace('\'', '"'));
    Files.writeString(folder.resolve("merges.txt"), merges);
    return Tokenizer.open(folder);
  }

  @Test
  void pairWithWindowsLineEndsAndMergesOfHashes() throws IOException {
    String vocab = "{'#':0,'##':1,'####':2,'<|endoftext|>':3}";
    try (Tokenizer tokenizer = openPair(vocab, "#version: 0.2\r\n# #\r\n## ##\r\n\r\n")) {
      assertArrayEquals(new int[] {2, 1, 3}, tokenizer.encode("######<|endoftext|>", true));
      assertTrue(tokenizer.isSpecial(3));
    }
  }

  @Test
  void pairWithTokensOfAFineTunedModel() throws IOException {
    Files.writeString(folder.resolve("added_tokens.json"), "{\"<pad>\":7,\"word\":5}");
    Files.writeString(
        folder.resolve("special_tokens_map.json"),
        """
        {"pad_token": "<pad>", "unk_token": {"content": "b"}, "additional_special_tokens": ["zzz"]}
        """);
    try (Tokenizer tokenizer = openPair("{'a':0,'b':1}", "#version: 0.2\n")) {
      assertEquals(9, tokenizer.size()); // zzz has no id in any file and gets the next one
      assertTrue(tokenizer.isSpecial(8));
      assertTrue(tokenizer.isSpecial(7));
      assertTrue(tokenizer.isSpecial(1));
      assertFalse(tokenizer.isSpecial(5));
      assertArrayEquals(new int[] {0, 5, 7}, tokenizer.encode("aword<pad>", true));
    }
  }

  @Test
  void brokenPairs() throws IOException {
    String[][] pairs = {
      {"{'a':0,'b':1", "a b"},
      {"{'a':0,'b':1,'ab':2}", "#version: 0.2\na b c"},
      {"{'a':0,'b':1,'ab':2}", "#version: 0.2\nab"},
      {"{'a':0,'b':1,'ab':2}", "#version: 0.2\na z"},
      {"{}", ""},
      {"", ""}
    };
    for (String[] pair : pairs) {
      CheckpointException e =
          assertThrows(CheckpointException.class, () -> openPair(pair[0], pair[1]).close());
      String message = String.valueOf(e.getMessage());
      assertTrue(message.contains(folder.toString()), message);
      assertEquals(1, message.lines().count(), message);
    }
    Files.delete(folder.resolve("merges.txt"));
    assertThrows(CheckpointException.class, () -> Tokenizer.open(folder));
  }
}
