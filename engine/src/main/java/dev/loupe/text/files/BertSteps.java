package dev.loupe.text.files;

import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonNull;
import com.google.gson.JsonObject;
import com.google.gson.JsonPrimitive;

/** The steps that BertTokenizer takes around its vocabulary, as the settings beside it say. */
final class BertSteps {
  private BertSteps() {}

  /** Makes them those of {@code json}, and its settings BERT's. */
  static void giveTo(TokenizerJson json, Findings findings) {
    TokenizerSettings settings = findings.settings();
    boolean lower = settings.flag("do_lower_case", true);
    boolean chinese = settings.flag("tokenize_chinese_chars", true);
    JsonElement accents =
        settings.has("strip_accents")
            ? new JsonPrimitive(settings.flag("strip_accents", false))
            : JsonNull.INSTANCE;
    JsonObject normalizer = Steps.step("BertNormalizer");
    normalizer.addProperty("clean_text", true);
    normalizer.addProperty("handle_chinese_chars", chinese);
    normalizer.add("strip_accents", accents);
    normalizer.addProperty("lowercase", lower);
    json.normalizer = normalizer;
    json.preTokenizer = Steps.step("BertPreTokenizer");
    JsonObject decoder = Steps.step("WordPiece");
    decoder.addProperty("prefix", "##");
    decoder.addProperty("cleanup", true);
    json.decoder = decoder;
    json.set("unk_token", new JsonPrimitive(token(settings, "unk_token", "[UNK]")));
    json.set("continuing_subword_prefix", new JsonPrimitive("##"));
    json.set("max_input_chars_per_word", new JsonPrimitive(100));
    JsonObject ends = Steps.step("BertProcessing");
    ends.add("sep", list(token(settings, "sep_token", "[SEP]")));
    ends.add("cls", list(token(settings, "cls_token", "[CLS]")));
    json.postProcessor = ends;
    findings.decided("do_lower_case", lower);
    findings.decided("tokenize_chinese_chars", chinese);
    findings.decided("strip_accents", accents);
  }

  /** The token in a role, which BERT can't be without. */
  private static String token(TokenizerSettings settings, String role, String otherwise) {
    String token = settings.token(role, otherwise);
    return token == null ? otherwise : token;
  }

  private static JsonArray list(String token) {
    JsonArray list = new JsonArray();
    list.add(token);
    return list;
  }
}
