package dev.loupe.cli.weights;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import dev.loupe.TinyModel;
import dev.loupe.cli.Ran;
import dev.loupe.cli.terminal.ExitCode;
import dev.loupe.model.Golden;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** A conversion keeps the ids of every text, or is refused. */
class ConvertedTokenizerTest {
  private static final String TEXT = "3 Kings, singing";

  @TempDir Path folder;
  private TinyModel model;
  private JsonObject tokenizer;

  @BeforeEach
  void make() throws IOException {
    model = TinyModel.in(folder.resolve("model"));
    Files.writeString(
        model.folder().resolve("tokenizer_config.json"),
        "{\"tokenizer_class\": \"PreTrainedTokenizerFast\"}");
    tokenizer =
        JsonParser.parseString(Files.readString(Golden.DEMO_MODEL.resolve("tokenizer.json")))
            .getAsJsonObject();
  }

  private void set(String name, String json) throws IOException {
    tokenizer.add(name, JsonParser.parseString(json.replace('\'', '"')));
    Files.writeString(model.tokenizer(), tokenizer.toString());
  }

  private static List<Integer> ids(Path model) {
    Ran ran = Ran.loupe("attention", TEXT, "-m", model, "--json", "--backend", "cpu").well();
    return ran.json().getFirst().getAsJsonArray("tokens").asList().stream()
        .map(JsonElement::getAsJsonObject)
        .map(token -> token.get("id").getAsInt())
        .toList();
  }

  @ParameterizedTest
  @CsvSource(
      delimiter = ';',
      quoteCharacter = '|',
      value = {
        "pre_tokenizer;{'type':'ByteLevel','add_prefix_space':true,'trim_offsets':true};add_prefix_space",
        "pre_tokenizer;{'type':'Sequence','pretokenizers':[{'type':'Digits','individual_digits':true},"
            + "{'type':'ByteLevel','add_prefix_space':false,'trim_offsets':true}]};Digits",
        "normalizer;{'type':'NFKC'};NFKC",
        "normalizer;{'type':'Lowercase'};Lowercase",
        "added_tokens;[{'id':278,'content':'ing','lstrip':true}];ing",
        "added_tokens;[{'id':278,'content':'ing','rstrip':true}];ing",
        "added_tokens;[{'id':278,'content':'ing','single_word':true}];ing",
      })
  void whatGgufCantCarry(String part, String json, String word) throws IOException {
    set(part, json);
    Path gguf = folder.resolve("copy.gguf");
    Ran.loupe("weights", "convert", model.folder(), gguf)
        .refused(ExitCode.BAD_INPUT, "its tokenizer has", word, "can't carry");
    assertFalse(Files.exists(gguf));
    Path copy = folder.resolve("copy");
    Ran.loupe("weights", "convert", model.folder(), copy).well();
    assertEquals(ids(model.folder()), ids(copy));
  }

  @Test
  void whatIsInFrontOfATextStaysThere() throws IOException {
    List<Integer> own = ids(model.folder());
    set("post_processor", "{'type':'BertProcessing','cls':['<|endoftext|>',1023],'sep':['a',64]}");
    List<Integer> whole = ids(model.folder());
    assertEquals(1023, whole.getFirst());
    assertEquals(own, whole.subList(1, whole.size()));
    Path gguf = folder.resolve("copy.gguf");
    Ran.loupe("weights", "convert", model.folder(), gguf).well();
    assertEquals(whole, ids(gguf));
    Path back = folder.resolve("back");
    Ran.loupe("weights", "convert", gguf, back).well();
    assertEquals(whole, ids(back));
    Ran.loupe("weights", "convert", back, folder.resolve("again.gguf")).well();
    assertEquals(whole, ids(folder.resolve("again.gguf")));
    String inspected = Ran.loupe("weights", "inspect", gguf).well().out();
    assertTrue(inspected.contains("<|endoftext|>, by add_bos_token"), inspected);
  }

  @Test
  void moreRowsThanTokensIsSaid() throws IOException {
    Path padded = TinyModel.padded(folder.resolve("padded")).folder();
    Ran ran = Ran.loupe("attention", TEXT, "-m", padded, "--backend", "cpu").well();
    assertTrue(ran.err().contains("has 1101 rows and the tokenizer 1031 tokens"), ran.err());
  }
}
