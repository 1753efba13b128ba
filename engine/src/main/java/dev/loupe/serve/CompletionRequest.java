package dev.loupe.serve;

import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import dev.loupe.Loupe;
import dev.loupe.Request;
import dev.loupe.sampling.Sampling;
import dev.loupe.text.Tokenizer;
import dev.loupe.weights.Gpt2Config;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.ThreadLocalRandom;
import org.jspecify.annotations.Nullable;

/**
 * What a client of {@code /v1/completions} asks for: OpenAI's fields, and top_k, min_p and
 * repetition_penalty as vLLM names them. Fields that are not known change nothing and are passed
 * over, as OpenAI does; those that would change the text and can't be honoured are refused.
 *
 * @param prompts token ids of each; none is empty
 * @param tokens to write at most, which the context has room for after each prompt
 * @param n continuations of each prompt
 * @param logprobs how many alternatives to each token; negative for no logprobs
 * @param includeUsage whether a stream ends with the counts of tokens
 * @param special whether special tokens are found in prompts and shown in texts
 */
record CompletionRequest(
    List<int[]> prompts,
    int tokens,
    int n,
    Sampling sampling,
    List<String> stops,
    boolean echo,
    int logprobs,
    boolean stream,
    boolean includeUsage,
    boolean special) {

  private static final int DEFAULT_TOKENS = 16;
  private static final int MOST_CHOICES = 128;
  private static final int MOST_STOPS = 4;
  private static final int LONGEST_STOP = 1000;
  private static final int MOST_LOGPROBS = 5;

  /**
   * Reads the fields of a request for {@code loupe}, which is known as {@code model}.
   *
   * @throws ApiException if one is wrong; the message says which and why
   */
  static CompletionRequest of(Fields fields, Loupe loupe, String model) {
    String asked = fields.string("model");
    if (asked != null && !asked.equals(model)) {
      throw ApiException.noSuchModel(
          "there is no model %s here, only %s".formatted(shorter(asked), model));
    }
    refuseWhatCantBeHonoured(fields);
    Gpt2Config config = loupe.info().config();
    List<int[]> prompts = Prompts.of(fields, loupe).of(fields.get("prompt"));
    List<String> stops = stops(fields.get("stop"));
    Optional<String> whyNoText = loupe.tokenizer().whyNoText();
    if (!stops.isEmpty() && whyNoText.isPresent()) {
      throw ApiException.field(
          "stop",
          null,
          "stop strings end a text, and this model takes token ids alone: " + whyNoText.get());
    }
    int tokens =
        (int) fields.whole("max_tokens", DEFAULT_TOKENS, 0, Math.max(1 << 20, config.nPositions()));
    int n = (int) fields.whole("n", 1, 1, MOST_CHOICES);
    long bestOf = fields.whole("best_of", n, 1, Integer.MAX_VALUE);
    if (bestOf != n) {
      throw ApiException.field(
          "best_of", null, "best_of is %d and n %d: they can't differ here".formatted(bestOf, n));
    }
    if (n * prompts.size() > MOST_CHOICES) {
      throw ApiException.field(
          "n",
          null,
          "%d prompts and n = %d: more than %d texts to write"
              .formatted(prompts.size(), n, MOST_CHOICES));
    }
    for (int[] prompt : prompts) {
      if (prompt.length + tokens > config.nPositions()) {
        throw ApiException.field(
            "prompt",
            "context_length_exceeded",
            "the prompt has %d tokens and max_tokens is %d: the model's context holds %d"
                .formatted(prompt.length, tokens, config.nPositions()));
      }
    }
    JsonElement options = fields.get("stream_options");
    if (options != null && !options.isJsonObject()) {
      throw Fields.wrong("stream_options", options, "an object");
    }
    return new CompletionRequest(
        prompts,
        tokens,
        n,
        sampling(fields),
        stops,
        fields.flag("echo"),
        (int) fields.whole("logprobs", -1, 0, MOST_LOGPROBS),
        fields.flag("stream"),
        options != null && new Fields(options.getAsJsonObject()).flag("include_usage"),
        fields.flag("special"));
  }

  private static void refuseWhatCantBeHonoured(Fields fields) {
    String suffix = fields.string("suffix");
    if (suffix != null && !suffix.isEmpty()) {
      throw ApiException.field("suffix", null, "suffix is not supported: GPT-2 only continues");
    }
    JsonElement bias = fields.get("logit_bias");
    if (bias != null && !(bias.isJsonObject() && bias.getAsJsonObject().isEmpty())) {
      throw ApiException.field("logit_bias", null, "logit_bias is not supported");
    }
  }

  static Sampling sampling(Fields fields) {
    long seed =
        fields.whole(
            "seed", ThreadLocalRandom.current().nextLong(1L << 32), Long.MIN_VALUE, Long.MAX_VALUE);
    long topK = fields.whole("top_k", 0, -1, Integer.MAX_VALUE); // -1 is vLLM's word for all
    try {
      return new Sampling(
          fields.number("temperature", 1),
          (int) Math.max(0, topK),
          fields.number("top_p", 1),
          fields.number("min_p", 0),
          fields.number("repetition_penalty", 1),
          fields.number("presence_penalty", 0),
          fields.number("frequency_penalty", 0),
          seed);
    } catch (IllegalArgumentException e) {
      throw ApiException.invalid(400, null, String.valueOf(e.getMessage()));
    }
  }

  private static List<String> stops(@Nullable JsonElement value) {
    if (value == null) {
      return List.of();
    }
    JsonArray list = new JsonArray();
    if (value.isJsonArray()) {
      list = value.getAsJsonArray();
    } else {
      list.add(value);
    }
    if (list.size() > MOST_STOPS) {
      throw ApiException.field(
          "stop", null, "%d stop strings, more than %d".formatted(list.size(), MOST_STOPS));
    }
    List<String> stops = new ArrayList<>();
    for (JsonElement stop : list) {
      String text = Fields.isString(stop) ? stop.getAsString() : "";
      if (text.isEmpty() || text.length() > LONGEST_STOP) {
        throw Fields.wrong(
            "stop", value, "a text of 1 to %d characters or several".formatted(LONGEST_STOP));
      }
      stops.add(text);
    }
    return stops;
  }

  /** What to run for one of the prompts. */
  Request request(int[] prompt) {
    Request request =
        Request.ids(prompt)
            .special(special)
            .tokens(tokens)
            .samples(n)
            .sampling(sampling)
            .stops(stops);
    return logprobs < 0 ? request : request.logprobs(logprobs);
  }

  private static String shorter(String text) {
    return text.length() > 60 ? text.substring(0, 60) + "..." : text;
  }

  /**
   * The four forms of a prompt.
   *
   * @param special whether special tokens in a text are taken as such
   * @param front whether a text gets the tokens in front that the tokenizer's files put there
   */
  record Prompts(Tokenizer tokenizer, Gpt2Config config, boolean special, boolean front) {
    /** Of a request with the fields special and, as vLLM names it, add_special_tokens. */
    static Prompts of(Fields fields, Loupe loupe) {
      JsonElement front = fields.get("add_special_tokens");
      return new Prompts(
          loupe.tokenizer(),
          loupe.info().config(),
          fields.flag("special"),
          front == null || fields.flag("add_special_tokens"));
    }

    List<int[]> of(@Nullable JsonElement value) {
      if (value == null) {
        return List.of(text("")); // as OpenAI: a new document
      }
      if (Fields.isString(value)) {
        return List.of(text(value.getAsString()));
      }
      if (!value.isJsonArray() || value.getAsJsonArray().isEmpty()) {
        throw wrong(value);
      }
      JsonArray list = value.getAsJsonArray();
      if (Fields.isNumber(list.get(0))) {
        return List.of(ids(list));
      }
      if (list.size() > MOST_CHOICES) {
        throw ApiException.field(
            "prompt", null, "%d prompts, more than %d".formatted(list.size(), MOST_CHOICES));
      }
      List<int[]> prompts = new ArrayList<>();
      for (JsonElement prompt : list) {
        if (Fields.isString(prompt)) {
          prompts.add(text(prompt.getAsString()));
        } else if (prompt.isJsonArray()) {
          prompts.add(ids(prompt.getAsJsonArray()));
        } else {
          throw wrong(value);
        }
      }
      return prompts;
    }

    private static ApiException wrong(JsonElement value) {
      return Fields.wrong(
          "prompt", value, "a string, an array of strings, of token ids, or of arrays of them");
    }

    private int[] text(String text) {
      int[] ids;
      try {
        ids = tokenizer.encodePrompt(text, special, front);
      } catch (IllegalArgumentException e) {
        throw ApiException.field("prompt", null, String.valueOf(e.getMessage()));
      }
      if (ids.length > 0) {
        return ids;
      }
      if (config.bosTokenId() < 0) {
        throw ApiException.field(
            "prompt", null, "the prompt is empty and the model has no beginning-of-text token");
      }
      return new int[] {config.bosTokenId()};
    }

    private int[] ids(JsonArray list) {
      if (list.isEmpty()) {
        throw ApiException.field("prompt", null, "a prompt without token ids");
      }
      int[] ids = new int[list.size()];
      int most = tokenizer.ids().length() - 1;
      for (int i = 0; i < ids.length; i++) {
        ids[i] = (int) Fields.whole("prompt", list.get(i), 0, most);
        if (!tokenizer.contains(ids[i])) {
          throw ApiException.field("prompt", null, "there is no token %d".formatted(ids[i]));
        }
      }
      return ids;
    }
  }
}
