package dev.loupe.weights.vocabulary;

import static java.nio.charset.StandardCharsets.UTF_8;

import com.google.gson.stream.JsonWriter;
import java.io.IOException;
import java.io.StringWriter;
import java.util.List;

/**
 * A vocabulary as Hugging Face's tokenizer.json, the way GPT-2's is written.
 *
 * <p>Source: the serialisation of huggingface/tokenizers, and the tokenizer.json of
 * openai-community/gpt2.
 */
public final class HfTokenizer {
  private HfTokenizer() {}

  /**
   * The text of the file, in UTF-8.
   *
   * @throws IllegalArgumentException if the vocabulary has no merges: this is for byte-level BPE
   */
  public static byte[] json(Vocabulary vocabulary) {
    if (vocabulary.merges().isEmpty()) {
      throw new IllegalArgumentException("a tokenizer without merges has no tokenizer.json");
    }
    StringWriter text = new StringWriter(1 << 21);
    try (JsonWriter json = new JsonWriter(text)) {
      json.setSerializeNulls(true);
      json.setHtmlSafe(false);
      json.beginObject();
      json.name("version").value("1.0");
      json.name("truncation").nullValue();
      json.name("padding").nullValue();
      addedTokens(json, vocabulary.tokens());
      json.name("normalizer").nullValue();
      byteLevel(json, "pre_tokenizer");
      postProcessor(json, vocabulary);
      byteLevel(json, "decoder");
      model(json, vocabulary);
      json.endObject();
    } catch (IOException e) {
      throw new AssertionError("a string takes all", e);
    }
    return text.toString().getBytes(UTF_8);
  }

  private static void byteLevel(JsonWriter json, String name) throws IOException {
    json.name(name).beginObject();
    json.name("type").value("ByteLevel");
    json.name("add_prefix_space").value(false);
    json.name("trim_offsets").value(true);
    json.name("use_regex").value(true);
    json.endObject();
  }

  /** Puts the vocabulary's front token before a text, if it has one. */
  private static void postProcessor(JsonWriter json, Vocabulary vocabulary) throws IOException {
    json.name("post_processor");
    if (vocabulary.front() < 0) {
      json.nullValue();
      return;
    }
    String token = vocabulary.tokens().get(vocabulary.front()).spelling();
    json.beginObject();
    json.name("type").value("TemplateProcessing");
    json.name("single").beginArray();
    templateToken(json, token);
    templateText(json, "A", 0);
    json.endArray();
    json.name("pair").beginArray();
    templateToken(json, token);
    templateText(json, "A", 0);
    templateText(json, "B", 1);
    json.endArray();
    json.name("special_tokens").beginObject();
    json.name(token).beginObject();
    json.name("id").value(token);
    json.name("ids").beginArray().value(vocabulary.front()).endArray();
    json.name("tokens").beginArray().value(token).endArray();
    json.endObject().endObject().endObject();
  }

  private static void templateToken(JsonWriter json, String token) throws IOException {
    json.beginObject().name("SpecialToken").beginObject();
    json.name("id").value(token).name("type_id").value(0).endObject().endObject();
  }

  private static void templateText(JsonWriter json, String name, int type) throws IOException {
    json.beginObject().name("Sequence").beginObject();
    json.name("id").value(name).name("type_id").value(type).endObject().endObject();
  }

  private static void addedTokens(JsonWriter json, List<Vocabulary.Token> tokens)
      throws IOException {
    json.name("added_tokens").beginArray();
    for (int id = 0; id < tokens.size(); id++) {
      Vocabulary.Token token = tokens.get(id);
      boolean special = token.kind() == Vocabulary.Kind.SPECIAL;
      if (special || token.kind() == Vocabulary.Kind.ADDED) {
        json.beginObject();
        json.name("id").value(id);
        json.name("content").value(token.spelling());
        json.name("single_word").value(false);
        json.name("lstrip").value(false);
        json.name("rstrip").value(false);
        json.name("normalized").value(false);
        json.name("special").value(special);
        json.endObject();
      }
    }
    json.endArray();
  }

  private static void model(JsonWriter json, Vocabulary vocabulary) throws IOException {
    json.name("model").beginObject();
    json.name("type").value("BPE");
    for (String setting : List.of("dropout", "unk_token")) {
      json.name(setting).nullValue();
    }
    json.name("continuing_subword_prefix").value("");
    json.name("end_of_word_suffix").value("");
    json.name("fuse_unk").value(false);
    json.name("vocab").beginObject();
    for (int id = 0; id < vocabulary.tokens().size(); id++) {
      Vocabulary.Token token = vocabulary.tokens().get(id);
      // of a token that is added the id must be known to BPE too, else it is given a new one
      if (token.kind() != Vocabulary.Kind.UNUSED) {
        json.name(token.spelling()).value(id);
      }
    }
    json.endObject();
    json.name("merges").beginArray();
    for (String merge : vocabulary.merges()) {
      json.value(merge);
    }
    json.endArray();
    json.endObject();
  }
}
