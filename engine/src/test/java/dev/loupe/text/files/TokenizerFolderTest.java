package dev.loupe.text.files;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.loupe.text.CharSpan;
import dev.loupe.text.StreamDecoder;
import dev.loupe.text.Tokenizer;
import dev.loupe.weights.io.CheckpointException;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Base64;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** Settings beside a vocabulary, on vocabularies of a few tokens. */
class TokenizerFolderTest {
  private static final String BERT = "[PAD]\n[UNK]\n[CLS]\n[SEP]\nhe\n##llo\né\ne\n.\n'\nt\n";
  private static final String JSON =
      """
      {'added_tokens':[],
       'pre_tokenizer':{'type':'ByteLevel','add_prefix_space':true,'trim_offsets':true},
       'model':{'type':'BPE','vocab':{'a':0,'b':1,'Ġ':2,'<s>':3},'merges':[]}}
      """;

  @TempDir private Path folder;

  private void write(String name, String text) throws IOException {
    Files.writeString(folder.resolve(name), text.replace('\'', '"'));
  }

  private int[] ids(String text) throws IOException {
    try (Tokenizer tokenizer = Tokenizer.open(folder)) {
      return tokenizer.encodePrompt(text, true, true);
    }
  }

  private void assertNoted(String note) throws IOException {
    try (Tokenizer tokenizer = Tokenizer.open(folder)) {
      String notes = String.join("\n", tokenizer.notes());
      assertTrue(notes.contains(note), notes);
    }
  }

  private void assertRefused(String... words) {
    CheckpointException e = assertThrows(CheckpointException.class, () -> Tokenizer.open(folder));
    String message = String.valueOf(e.getMessage());
    assertEquals(1, message.lines().count(), message);
    for (String word : words) {
      assertTrue(message.contains(word), message);
    }
  }

  @Test
  void prefixSpaceIsTheClassesAffairOrTheFiles() throws IOException {
    write("tokenizer.json", JSON);
    assertArrayEquals(new int[] {2, 0}, ids("a"));
    write("tokenizer_config.json", "{'tokenizer_class':'GPT2TokenizerFast'}");
    assertArrayEquals(new int[] {0}, ids("a"));
    assertNoted("add_prefix_space is true in tokenizer.json and not given");
    write(
        "tokenizer_config.json",
        "{'tokenizer_class':'PreTrainedTokenizerFast','add_prefix_space':false}");
    assertArrayEquals(new int[] {2, 0}, ids("a"));
    assertNoted("add_prefix_space is true in tokenizer.json, which counts");
    write("tokenizer_config.json", "{'tokenizer_class':'PreTrainedTokenizerFast'}");
    assertArrayEquals(new int[] {2, 0}, ids("a"));
    Files.delete(folder.resolve("tokenizer_config.json"));
    write("config.json", "{'model_type':'gpt2'}");
    assertArrayEquals(new int[] {0}, ids("a"));
  }

  /** Each changes ids with some class of tokenizers, and none does with this one. */
  @ParameterizedTest
  @ValueSource(
      strings = {
        "'do_lower_case':true",
        "'strip_accents':true",
        "'split_special_tokens':true",
        "'tokenize_chinese_chars':false",
        "'do_basic_tokenize':false",
        "'remove_space':false",
        "'keep_accents':true",
        "'sp_model_kwargs':{'enable_sampling':true}",
        "'auto_map':{'AutoTokenizer':['own.Tokenizer',null]}",
        "'never_split':['x']",
      })
  void settingsThatAreNotFollowedAreNamed(String setting) throws IOException {
    write("vocab.json", "{'a':0,'b':1,'ab':2}");
    write("merges.txt", "a b\n");
    write("tokenizer_config.json", "{'tokenizer_class':'GPT2Tokenizer',%s}".formatted(setting));
    assertArrayEquals(new int[] {2}, ids("ab"));
    assertNoted(
        setting.substring(1, setting.indexOf(':') - 1)
            + " in tokenizer_config.json is not followed");
    write(
        "tokenizer_config.json",
        "{'do_lower_case':false,'strip_accents':null,'never_split':[],'remove_space':true,"
            + "'do_basic_tokenize':true,'tokenizer_class':'GPT2Tokenizer'}");
    try (Tokenizer tokenizer = Tokenizer.open(folder)) {
      assertEquals(List.of(), tokenizer.notes());
    }
  }

  /** transformers 4 took the ids of the files, transformers 5 numbers tokens without a gap. */
  @Test
  void gapsInTheIdsOfAddedTokens() throws IOException {
    write("vocab.json", "{'a':0,'b':1,'ab':2}");
    write("merges.txt", "a b\n");
    String tokens =
        "{'tokenizer_class':'GPT2Tokenizer','added_tokens_decoder':"
            + "{'3':{'content':'<x>'},'%d':{'content':'<y>','special':true}}}";
    write("tokenizer_config.json", tokens.formatted(4));
    assertArrayEquals(new int[] {2, 3, 4}, ids("ab<x><y>"));
    try (Tokenizer tokenizer = Tokenizer.open(folder)) {
      assertEquals(List.of(), tokenizer.notes());
    }
    write("tokenizer_config.json", tokens.formatted(9));
    assertArrayEquals(new int[] {2, 3, 9}, ids("ab<x><y>"));
    assertNoted("\"<y>\" has the id 9, as the model's files say; transformers 5");
    assertNoted("gives it 4");
    Files.delete(folder.resolve("tokenizer_config.json"));
    write(
        "tokenizer.json",
        JSON.replace("'added_tokens':[]", "'added_tokens':[{'id':7,'content':'<y>'}]"));
    assertArrayEquals(new int[] {7}, ids("<y>"));
    assertNoted("gives it 4");
  }

  @Test
  void whatIsPutBehindATextIsSaid() throws IOException {
    write("vocab.json", "{'a':0,'b':1,'ab':2,'</s>':3}");
    write("merges.txt", "a b\n");
    write(
        "tokenizer_config.json",
        "{'tokenizer_class':'GPT2Tokenizer','add_eos_token':true,'eos_token':'</s>'}");
    assertArrayEquals(new int[] {2}, ids("ab"));
    assertNoted("puts </s> behind a text");
    write(
        "tokenizer_config.json",
        "{'tokenizer_class':'GPT2Tokenizer','add_bos_token':true,'bos_token':'</s>'}");
    assertArrayEquals(new int[] {3, 2}, ids("ab"));
    assertNoted("put </s> in front of a text");
    String processor =
        "{'type':'TemplateProcessing','single':[{'Sequence':{'id':'A','type_id':0}},"
            + "{'SpecialToken':{'id':'E','type_id':0}}],'pair':[],"
            + "'special_tokens':{'E':{'id':'E','ids':[3],'tokens':['<s>']}}}";
    write("tokenizer_config.json", "{'tokenizer_class':'PreTrainedTokenizerFast'}");
    write(
        "tokenizer.json",
        JSON.replace("'added_tokens':[]", "'added_tokens':[],'post_processor':" + processor));
    assertArrayEquals(new int[] {2, 0}, ids("a"));
    assertNoted("puts <s> behind a text");
  }

  @Test
  void dropoutIsForTraining() throws IOException {
    write("tokenizer.json", JSON.replace("'type':'BPE'", "'type':'BPE','dropout':0.1"));
    assertNoted("dropout in tokenizer.json");
    write("tokenizer.json", JSON.replace("'type':'BPE'", "'type':'BPE','dropout':null"));
    try (Tokenizer tokenizer = Tokenizer.open(folder)) {
      assertEquals(List.of(), tokenizer.notes());
    }
  }

  @ParameterizedTest
  @ValueSource(strings = {"'BPEDecoder','suffix':'</w>'", "'CTC','pad_token':'<pad>'"})
  void decodersThatCantBeUsed(String decoder) throws IOException {
    write(
        "tokenizer.json",
        JSON.replace("ByteLevel", "Whitespace")
            .replace("'added_tokens':[]", "'added_tokens':[],'decoder':{'type':%s}")
            .formatted(decoder));
    assertRefused("tokenizer.json", "its decoder is", decoder.substring(1, 4), "can't be used");
  }

  /**
   * Fields 1, 2 and 5 of a model: three pieces, its kind, and what it does to text that is shown.
   */
  @Test
  void kindsOfSentencePieceModels() throws IOException {
    byte[] pieces = {
      10, 9, 10, 5, '<', 'u', 'n', 'k', '>', 24, 2, 10, 3, 10, 1, 'a', 10, 3, 10, 1, 'b'
    };
    byte[] rules = {42, 3, 18, 1, 'x'};
    for (int kind = 1; kind <= 4; kind++) {
      byte[] trainer = {18, 2, 24, (byte) kind};
      ByteArrayOutputStream model = new ByteArrayOutputStream();
      model.writeBytes(pieces);
      model.writeBytes(trainer);
      model.writeBytes(rules);
      Files.write(folder.resolve("spiece.model"), model.toByteArray());
      if (kind > 2) {
        assertRefused(
            "spiece.model is a SentencePiece model of the kind", kind == 3 ? "WORD" : "CHAR");
      } else {
        assertNoted("denormalizer_spec");
      }
    }
  }

  @Test
  void aTokenizerJsonSaysItselfWhatGoesInFront() throws IOException {
    write("tokenizer.json", JSON.replace("true,'trim", "false,'trim"));
    write("tokenizer_config.json", "{'add_bos_token':true,'bos_token':'<s>'}");
    assertArrayEquals(new int[] {0}, ids("a"));
    assertNoted("add_bos_token and add_eos_token");
    write(
        "tokenizer.json",
        JSON.replace(
            "'added_tokens':[]",
            "'added_tokens':[],'post_processor':{'type':'RobertaProcessing','sep':['b',1],"
                + "'cls':['<s>',3],'trim_offsets':true,'add_prefix_space':true}"));
    assertArrayEquals(new int[] {3, 2, 0}, ids("a"));
    assertNoted("put <s> in front of a text");
  }

  @Test
  void settingsOfBert() throws IOException {
    Files.writeString(folder.resolve("vocab.txt"), BERT);
    assertArrayEquals(new int[] {2, 4, 5, 7}, ids("Hello É"));
    assertNoted("names no such class");
    write("tokenizer_config.json", "{'tokenizer_class':'BertTokenizer','do_lower_case':false}");
    assertArrayEquals(new int[] {2, 1, 6}, ids("Hello é"));
    write("tokenizer_config.json", "{'tokenizer_class':'BertTokenizer','strip_accents':false}");
    assertArrayEquals(new int[] {2, 4, 5, 6}, ids("Hello é"));
    write("tokenizer_config.json", "{'tokenizer_class':'BertTokenizer','never_split':['x']}");
    assertNoted("never_split in tokenizer_config.json is not followed");
    write(
        "tokenizer_config.json",
        "{'tokenizer_class':'BertTokenizer','clean_up_tokenization_spaces':true}");
    try (Tokenizer tokenizer = Tokenizer.open(folder)) {
      int[] ids = {7, 9, 10, 8, 5};
      assertEquals("e't.llo", tokenizer.decode(ids));
      StreamDecoder stream = new StreamDecoder(tokenizer);
      StringBuilder text = new StringBuilder();
      for (int id : ids) {
        text.append(stream.push(id));
      }
      assertEquals("e't.llo", text + stream.finish());
      assertEquals(7, CharSpan.of(tokenizer, ids).getLast().end());
    }
  }

  @Test
  void theClassChoosesAmongFiles() throws IOException {
    Files.writeString(folder.resolve("vocab.txt"), BERT);
    write("vocab.json", "{'a':0,'b':1,'ab':2}");
    write("merges.txt", "a b\n");
    assertArrayEquals(new int[] {2}, ids("ab"));
    write("tokenizer_config.json", "{'tokenizer_class':'BertTokenizer'}");
    assertArrayEquals(new int[] {2, 7}, ids("e"));
    write("tokenizer_config.json", "{'tokenizer_class':'BertJapaneseTokenizer'}");
    assertRefused("BertJapaneseTokenizer", "can't be used");
  }

  @Test
  void whatCantBeUsedIsNamed() throws IOException {
    Files.write(folder.resolve("spiece.model"), new byte[] {10, 3, 1, 2, 3});
    assertRefused("spiece.model");
    Files.write(folder.resolve("spiece.model"), new byte[0]);
    assertRefused("spiece.model", "empty");
    Files.writeString(
        folder.resolve("spiece.model"), "version https://git-lfs.github.com/spec/v1\n");
    assertRefused("spiece.model", "Git LFS pointer");
    Files.delete(folder.resolve("spiece.model"));
    Files.write(folder.resolve("vocab.txt"), new byte[] {'a', (byte) 0xFF, '\n'});
    assertRefused("vocab.txt", "not UTF-8");
    Files.writeString(folder.resolve("vocab.txt"), "a\nb\n");
    assertRefused("not a usable tokenizer");
    write("tokenizer_config.json", "{'added_tokens_decoder':{'x':{'content':'y'}}}");
    assertRefused("tokenizer_config.json", "no id");
    write("tokenizer_config.json", "[");
    assertRefused("tokenizer_config.json", "JSON");
  }

  /** The native library would end the process. */
  @Test
  void aDamagedTableOfCharactersIsRefused() throws IOException {
    for (byte[] map : new byte[][] {{4, 0, 0, 0, -1, -1, -1, -1}, {8, 0}, {0, 0, 0, 0}}) {
      String normalizer =
          "{'type':'Precompiled','precompiled_charsmap':'%s'}"
              .formatted(Base64.getEncoder().encodeToString(map));
      write(
          "tokenizer.json",
          JSON.replace("'added_tokens':[]", "'added_tokens':[],'normalizer':" + normalizer));
      assertRefused("precompiled_charsmap is damaged");
    }
  }
}
