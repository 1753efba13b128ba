package dev.loupe.serve.completions;

import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import dev.loupe.Loupe;
import dev.loupe.chat.ChatTemplate;
import dev.loupe.serve.http.ApiException;
import dev.loupe.serve.http.Exchange;
import dev.loupe.serve.http.Fields;
import dev.loupe.serve.http.KnownFields;
import dev.loupe.serve.http.Outbox;
import dev.loupe.serve.http.Places;
import dev.loupe.text.Tokenizer;
import dev.loupe.weights.config.Gpt2Config;
import java.time.Duration;
import java.util.Optional;
import org.jspecify.annotations.Nullable;

/**
 * The model's tokenizer, for clients that have none: {@code /tokenize}, {@code /detokenize} and
 * {@code /tokenizer_info}, as vLLM has them.
 */
public final class Tokens {
  public static final String TOKENIZE = "/tokenize";
  public static final String DETOKENIZE = "/detokenize";
  public static final String INFO = "/tokenizer_info";

  private static final int MOST_TOKENS = 1 << 18;

  private final Loupe loupe;
  private final String model;
  private final Optional<ChatTemplate> chat;
  private final Places places;
  private final Duration timeout;
  private final Outbox outbox;

  public Tokens(
      Loupe loupe,
      String model,
      Optional<ChatTemplate> chat,
      Places places,
      Duration timeout,
      Outbox outbox) {
    this.loupe = loupe;
    this.model = model;
    this.chat = chat;
    this.places = places;
    this.timeout = timeout;
    this.outbox = outbox;
  }

  /**
   * Answers a request at one of the three paths.
   *
   * @throws ApiException if the request is wrong or can't be served
   */
  public void answer(Exchange exchange, String route) {
    if (route.equals(INFO)) {
      exchange.send(200, info());
      return;
    }
    long deadline = System.nanoTime() + timeout.toNanos();
    JsonObject answer;
    try (Places.Place place = places.enter()) {
      Fields fields = Fields.parse(exchange.request().body());
      (route.equals(TOKENIZE) ? KnownFields.TOKENIZE : KnownFields.DETOKENIZE).check(fields);
      CompletionRequest.requireModel(fields, model);
      loupe
          .tokenizer()
          .whyNoText()
          .ifPresent(
              why -> {
                throw ApiException.field(route.equals(TOKENIZE) ? "prompt" : "tokens", null, why);
              });
      exchange.reserve(outbox, 8L * exchange.request().body().length, deadline);
      try (Places.Text _ = places.text(exchange.request().body().length, deadline)) {
        place.await(deadline);
        answer = route.equals(TOKENIZE) ? tokenize(fields) : detokenize(fields);
      }
    } catch (InterruptedException e) {
      throw ApiException.closing();
    }
    exchange.send(200, answer);
  }

  /**
   * Special tokens are found in the text, as by the tokenizers of others, unless {@code special} is
   * false, which is how completions read a prompt.
   */
  private JsonObject tokenize(Fields fields) {
    String text = fields.string("prompt");
    if (text == null) {
      throw ApiException.field("prompt", null, "prompt is missing: give the text");
    }
    boolean special = fields.get("special") == null || fields.flag("special");
    Tokenizer tokenizer = loupe.tokenizer();
    int[] ids;
    try {
      ids = tokenizer.encodePrompt(text, special, Prompts.front(fields));
    } catch (IllegalArgumentException e) {
      throw ApiException.field("prompt", null, String.valueOf(e.getMessage()));
    }
    JsonArray tokens = new JsonArray(ids.length);
    JsonArray spellings = new JsonArray();
    boolean spelled = fields.flag("return_token_strs");
    for (int id : ids) {
      tokens.add(id);
      if (spelled) {
        spellings.add(tokenizer.raw(id));
      }
    }
    JsonObject json = new JsonObject();
    json.addProperty("count", ids.length);
    json.addProperty("max_model_len", loupe.info().config().nPositions());
    json.add("tokens", tokens);
    json.add("token_strs", spelled ? spellings : null);
    return json;
  }

  /** Special tokens are part of the text, as by the tokenizers of others. */
  private JsonObject detokenize(Fields fields) {
    JsonElement tokens = fields.get("tokens");
    if (tokens == null || !tokens.isJsonArray() || tokens.getAsJsonArray().size() > MOST_TOKENS) {
      throw ApiException.field(
          "tokens", null, "tokens is not an array of at most %d ids".formatted(MOST_TOKENS));
    }
    int[] ids = Prompts.ids("tokens", tokens.getAsJsonArray(), loupe.tokenizer());
    JsonObject json = new JsonObject();
    json.addProperty("prompt", loupe.tokenizer().decode(ids, true));
    return json;
  }

  private JsonObject info() {
    Gpt2Config config = loupe.info().config();
    JsonObject json = new JsonObject();
    json.addProperty("model", model);
    json.addProperty("bos_token", spelling(config.bosTokenId()));
    json.addProperty(
        "eos_token",
        config.eosTokenIds().isEmpty() ? null : spelling(config.eosTokenIds().getFirst()));
    json.addProperty("pad_token", (String) null);
    json.addProperty("add_bos_token", loupe.tokenizer().front().length > 0);
    json.addProperty("chat_template", chat.map(ChatTemplate::text).orElse(null));
    json.addProperty("model_max_length", config.nPositions());
    json.addProperty("vocab_size", loupe.tokenizer().ids().cardinality());
    return json;
  }

  private @Nullable String spelling(int id) {
    boolean known = loupe.tokenizer().whyNoText().isEmpty() && loupe.tokenizer().contains(id);
    return known ? loupe.tokenizer().raw(id) : null;
  }
}
