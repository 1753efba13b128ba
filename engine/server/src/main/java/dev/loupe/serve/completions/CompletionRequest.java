package dev.loupe.serve.completions;

import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import dev.loupe.Loupe;
import dev.loupe.generate.GenerateRequest;
import dev.loupe.generate.Prompt;
import dev.loupe.sampling.Sampling;
import dev.loupe.serve.http.ApiException;
import dev.loupe.serve.http.Fields;
import dev.loupe.serve.http.KnownFields;
import dev.loupe.text.Count;
import dev.loupe.text.Tokenizer;
import dev.loupe.weights.config.Gpt2Config;
import dev.loupe.weights.io.StrictJson;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.ThreadLocalRandom;
import java.util.stream.Collectors;
import org.jspecify.annotations.Nullable;

/**
 * What a client of {@code /v1/completions} or {@code /v1/chat/completions} asks for: OpenAI's
 * fields, and others as vLLM names them. {@link KnownFields} says what becomes of the rest.
 *
 * @param prompts not read yet: that takes time, and waits for the request's turn
 * @param tokens to write at most; negative for what the context has room for
 * @param n continuations of each prompt
 * @param logprobs how many alternatives to each token; negative for no logprobs
 * @param stopTokens ids that end a text beside the model's own
 * @param includeUsage whether a stream ends with the counts of tokens
 * @param special whether special tokens are found in prompts and shown in texts
 */
public record CompletionRequest(
    Prompts prompts,
    int tokens,
    int minTokens,
    int n,
    Sampling sampling,
    List<String> stops,
    Set<Integer> stopTokens,
    boolean ignoreEos,
    boolean echo,
    int logprobs,
    boolean stream,
    boolean includeUsage,
    boolean special) {

  private static final int DEFAULT_TOKENS = 16;
  static final int MOST_CHOICES = 128;
  private static final int MOST_STOPS = 4;
  private static final int LONGEST_STOP = 1000;
  private static final int MOST_STOP_TOKENS = 128;
  private static final int MOST_LOGPROBS = 5;

  /**
   * Reads the fields of a request for {@code loupe}, which is known as {@code model}.
   *
   * @throws ApiException if one is wrong; the message says which and why
   */
  static CompletionRequest of(Fields fields, Loupe loupe, String model) {
    requireModel(fields, model);
    KnownFields.COMPLETIONS.check(fields);
    Gpt2Config config = loupe.info().config();
    int tokens =
        (int) fields.whole("max_tokens", DEFAULT_TOKENS, 0, Math.max(1 << 20, config.nPositions()));
    Prompts prompts =
        Prompts.of(
            "prompt",
            fields,
            loupe,
            new Prompts.Writing("max_tokens", tokens, false),
            truncation(fields, config));
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
          "%s and n = %d: more than %d texts to write"
              .formatted(Count.of(prompts.size(), "prompt"), n, MOST_CHOICES));
    }
    return of(
        fields,
        loupe,
        prompts,
        tokens,
        n,
        stopTokens(fields.get("stop_token_ids"), loupe.tokenizer()),
        fields.flag("echo"),
        (int) fields.whole("logprobs", -1, 0, MOST_LOGPROBS),
        fields.flag("special"));
  }

  /**
   * What is asked for alike of texts and of conversations, and what else was read.
   *
   * @throws ApiException if a field is wrong
   */
  static CompletionRequest of(
      Fields fields,
      Loupe loupe,
      Prompts prompts,
      int tokens,
      int n,
      Set<Integer> stopTokens,
      boolean echo,
      int logprobs,
      boolean special) {
    List<String> stops = stops(fields.get("stop"));
    Optional<String> whyNoText = loupe.tokenizer().whyNoText();
    if (!stops.isEmpty() && whyNoText.isPresent()) {
      throw ApiException.field(
          "stop",
          null,
          "stop strings end a text, and this model takes token ids alone: " + whyNoText.get());
    }
    JsonElement options = fields.get("stream_options");
    if (options != null && !options.isJsonObject()) {
      throw Fields.wrong("stream_options", options, "an object");
    }
    Fields streaming = new Fields(options == null ? new JsonObject() : options.getAsJsonObject());
    KnownFields.STREAM_OPTIONS.check(streaming);
    return new CompletionRequest(
        prompts,
        tokens,
        (int) fields.whole("min_tokens", 0, 0, tokens < 0 ? prompts.mostTokens() : tokens),
        n,
        sampling(fields),
        stops,
        stopTokens,
        fields.flag("ignore_eos"),
        echo,
        logprobs,
        fields.flag("stream"),
        streaming.flag("include_usage"),
        special);
  }

  /**
   * @throws ApiException if a request is for another model than {@code model}
   */
  static void requireModel(Fields fields, String model) {
    String asked = fields.string("model");
    if (asked != null && !asked.equals(model)) {
      throw ApiException.noSuchModel(
          "there is no model %s here, only %s".formatted(StrictJson.shown(asked), model));
    }
  }

  /** How many tokens of a prompt are kept: the last of them. */
  private static Prompts.Truncation truncation(Fields fields, Gpt2Config config) {
    long most = fields.whole("truncate_prompt_tokens", 0, -1, config.nPositions());
    if (most == 0 && fields.get("truncate_prompt_tokens") != null) {
      throw ApiException.field(
          "truncate_prompt_tokens",
          null,
          "truncate_prompt_tokens is 0: give -1 for what the context has room for, or 1 and more");
    }
    return new Prompts.Truncation((int) most);
  }

  static Set<Integer> stopTokens(@Nullable JsonElement value, Tokenizer tokenizer) {
    if (value == null) {
      return Set.of();
    }
    if (!value.isJsonArray() || value.getAsJsonArray().size() > MOST_STOP_TOKENS) {
      throw Fields.wrong(
          "stop_token_ids", value, "an array of at most %d ids".formatted(MOST_STOP_TOKENS));
    }
    return Arrays.stream(Prompts.ids("stop_token_ids", value.getAsJsonArray(), tokenizer))
        .boxed()
        .collect(Collectors.toSet());
  }

  public static Sampling sampling(Fields fields) {
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

  /**
   * What to run for one of the prompts.
   *
   * @param p its number
   */
  GenerateRequest request(int[] prompt, int p) {
    int room = prompts.mostTokens() - prompt.length + 1;
    GenerateRequest request =
        GenerateRequest.of(Prompt.ids(prompt).special(special))
            .tokens(tokens < 0 ? room : tokens)
            .minTokens(tokens < 0 ? Math.min(room, minTokens) : minTokens)
            .samples(n)
            .firstSample(p * n)
            .sampling(sampling)
            .stops(stops)
            .stopTokens(stopTokens)
            .ignoreEos(ignoreEos);
    return logprobs < 0 ? request : request.logprobs(logprobs);
  }

  /** About how many an answer that is not streamed has. */
  long bytes() {
    long most = tokens < 0 ? prompts.mostTokens() : tokens;
    long text = echo ? most + prompts.mostTokens() : most;
    long each = 8 + (logprobs < 0 ? 0 : 80 + 60L * logprobs);
    return (long) prompts.size() * n * text * each;
  }
}
